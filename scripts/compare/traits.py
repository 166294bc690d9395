"""Questions about a difference, of which the table of known ones is made."""

import re

import torch

from judge import TOLERANCE, close
from program import NoGrad
from sides import Torch

REDUCED = "median|nanmedian|nansum|nanmean|sum|mean|prod|std|var|std_mean|var_mean|max|min|argsort|sort"
VIEWS = ("broadcast_to|chunk|diagonal|expand|expand_as|flatten|index|movedim|narrow|permute|reshape|reshape_as|select|"
         "split|squeeze|swapaxes|swapdims|t|transpose|unbind|unflatten|unsqueeze|view|view_as|atleast_[123]d|"
         "[hvd]split|broadcast_tensors|meshgrid|diag|ravel|tensor_split|split_with_sizes|unfold|einsum|"
         r"linalg\.diagonal|as_strided")


def text_of(difference):
    return "\n".join(statement.lua() for statement in difference.statements)


def text_before(difference):
    """The program up to the statement that it shows in."""
    return "\n".join(statement.lua() for statement in difference.statements[:difference.place + 1])


def programs_with(pattern):
    """A test: does the program's text hold this?"""
    pattern = re.compile(pattern)
    return lambda difference: pattern.search(text_of(difference)) is not None


def statement_with(pattern):
    """A test: does the statement that it shows in hold this?"""
    pattern = re.compile(pattern)
    return lambda difference: pattern.search(difference.statements[difference.place].lua()) is not None


def all_of(*tests):
    return lambda difference: all(test(difference) for test in tests)


def any_of(*tests):
    return lambda difference: any(test(difference) for test in tests)


def all_zero(record):
    return record is not None and record.kind == "T" and not record.tensor().any()


def is_none(record):
    return record is None or record.kind == "0" or record.kind == "B" and record.data == "false"


def is_nothing(difference):
    """Has ours no gradient at all?"""
    return is_none(difference.ours)


def zeros_or_nothing(difference):
    return (is_none(difference.ours) and all_zero(difference.theirs) or
            is_none(difference.theirs) and all_zero(difference.ours))


def apart(difference):
    """Where the two tensors differ by more than the tolerance of their dtype: a mask, ours and PyTorch's elements."""
    ours, theirs = difference.ours.tensor(), difference.theirs.tensor()
    mask = ~close(ours, theirs, difference.ours.dtype)
    return mask, ours[mask], theirs[mask]


def is_floating(difference):
    return difference.ours.kind == "T" and difference.ours.dtype in TOLERANCE


def their_nan(difference):
    """Is PyTorch's result nan or infinite wherever they differ?"""
    return is_floating(difference) and bool((~apart(difference)[2].isfinite()).all())


def their_zeros(difference):
    """Is PyTorch's result 0 wherever they differ?"""
    return is_floating(difference) and not apart(difference)[2].any()


def beyond_numbers(difference):
    """Is one side or the other no finite number wherever they differ?"""
    if not is_floating(difference):
        return False
    _, ours, theirs = apart(difference)
    return bool((~ours.isfinite() | ~theirs.isfinite()).all())


def nearly(difference, relative=1e-6):
    """Do the two sides agree to about float32's precision?"""
    _, ours, theirs = apart(difference)
    return bool(((ours.double() - theirs.double()).abs() <= relative * theirs.double().abs()).all())


def reads_itself(difference):
    """Is there a write between tensors of one storage?"""
    for target, arguments in re.findall(r"(\w+):\w+_\(([^()]*)\)", text_of(difference)):
        written = difference.records.get(target)
        for name in re.findall(r"\w+", arguments):
            read = difference.records.get(name)
            if written and read and written.kind == read.kind == "T" and written.storage == read.storage:
                return True
    return False


def left_by_failure(difference):
    """Was the variable's memory to be written by a statement that failed?"""
    for statement, status in zip(difference.statements, difference.statuses):
        target = re.search(r"(\w+):\w+_\(", statement.lua()) if status != "." else None
        loading = re.search(r"(\w+):load_state_dict\(", statement.lua()) if status != "." else None
        if loading and difference.name.startswith(loading.group(1) + "."):
            return True
        target = target and difference.records.get(target.group(1))
        if target and target.kind == "T" and target.storage == difference.theirs.storage:
            return True
    return False


def as_of_rows(difference):
    """Does PyTorch say what we say once its batch_norm gets its input row-major?"""
    functional = torch.nn.functional
    own = functional.batch_norm
    functional.batch_norm = lambda x, *args, **options: own(x.contiguous(), *args, **options)
    try:
        again = Torch.outcome(difference.statements).records.get(difference.name)
    finally:
        functional.batch_norm = own
    return bool(again and again.kind == "T" and again.shape == difference.ours.shape and
                close(difference.ours.tensor(), again.tensor(), again.dtype).all())


def tensors(difference):
    return [record for record in difference.records.values() if record.kind == "T"]


def at_nan(difference):
    """Is the leaf itself nan wherever its gradients differ?"""
    leaf = difference.name[:-len(".grad")]
    if difference.call == "autograd.grad":
        leaf = re.search(r"\{(\w+)\}", difference.statements[difference.place].lua()).group(1)
    leaf = difference.records.get(leaf)
    return (is_floating(difference) and leaf is not None and leaf.shape == difference.ours.shape and
            bool(leaf.tensor().isnan()[apart(difference)[0]].all()))


def has_nan(difference):
    return any(record.tensor().isnan().any() for record in tensors(difference))


def has_infinite(difference):
    return any(not record.tensor().isfinite().all() for record in tensors(difference))


def overflows(difference):
    """Are there numbers whose products leave float32, or integers beyond a half?"""
    bounds = {"float16": 1e3, **dict.fromkeys(("float32", "float64", "bfloat16"), 1e18)}
    return any((record.tensor().abs() > bounds.get(record.dtype, 65504)).any()
               for record in tensors(difference) if record.dtype != "bool")


def cancels(difference, units=2):
    """Are the two sides apart by no more than some units in the last place of the program's largest number?"""
    if not is_floating(difference):
        return False
    _, ours, theirs = apart(difference)
    floating = [record.tensor().double() for record in tensors(difference) if record.dtype in TOLERANCE]
    largest = max((t[t.isfinite()].abs().max().item() for t in floating if t.isfinite().any()), default=0.0)
    return bool(((ours - theirs).abs() <= units * torch.finfo(ours.dtype).eps * largest).all())


def has_singular(difference):
    """Is there a matrix without full rank, or nearly so?"""
    for record in tensors(difference):
        matrix = record.tensor()
        if record.dtype in TOLERANCE and matrix.dim() > 1 and matrix.numel() and matrix.isfinite().all():
            ranks = torch.linalg.matrix_rank(matrix.double(), rtol=1e-6)
            if bool((ranks < min(matrix.shape[-2:])).any()):
                return True
    return False


def nearly_zero(difference):
    """Are both sides beside 0 wherever they differ?"""
    return is_floating(difference) and all(bool((side.abs() < 1e-7).all()) for side in apart(difference)[1:])


def same_sums(difference):
    """Do the elements of the two tensors add up to the same?"""
    if not is_floating(difference):
        return False
    ours, theirs = difference.ours.tensor().double().sum(), difference.theirs.tensor().double().sum()
    return bool((ours - theirs).abs() <= 1e-4 * max(1.0, theirs.abs().item()))


def has_empty(difference):
    return any(0 in record.shape for record in tensors(difference))


def is_empty(difference):
    return difference.theirs.kind == "T" and 0 in difference.theirs.shape


def is_gradient(difference):
    return difference.name.endswith(".grad") or difference.call == "autograd.grad"


def flags(ours, theirs):
    """A test: do the flags (r: requires a gradient, l: a leaf) differ so?"""
    return lambda difference: difference.ours.flags == ours and difference.theirs.flags == theirs


def without_gradients(difference):
    """Was the variable made without gradients, or did a tensor require them later?"""
    return (isinstance(difference.statements[difference.place], NoGrad) or
            "requires_grad_(" in text_of(difference))


def flags_differ(difference):
    return difference.kind == "flags"


def is_constant(difference):
    """Is the derivative that PyTorch gives a history the same whatever its leaves hold?"""
    side = Torch()
    for statement in difference.statements[:difference.place + 1]:
        side.run(statement)
    made = side.environment.get(difference.name)
    leaves = [value for value in side.environment.values() if isinstance(value, torch.Tensor)]
    for module in side.environment.values():
        leaves += module.parameters() if isinstance(module, torch.nn.Module) else []
    leaves = [leaf for leaf in leaves if leaf.is_leaf and leaf.requires_grad]
    try:
        slopes = torch.autograd.grad(made.sum(), leaves, allow_unused=True)
    except RuntimeError as error:  # PyTorch may have no second derivative there
        return "is not implemented" in str(error)
    return not any(slope is not None and slope.any() for slope in slopes)
