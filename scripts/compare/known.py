"""Deviations that are meant: each with the reason, and how a difference is recognised as it."""

import re


class Known:
    """kinds: of differences; call: of the statement (regular expression); ours, theirs: of the two sides' texts;
    test: a function of the difference for what these cannot say."""

    def __init__(self, reason, kinds, call="", ours="", theirs="", test=None):
        self.reason, self.kinds, self.test = reason, kinds.split(), test
        self.call = re.compile(f"^({call})$" if call else "")
        self.ours, self.theirs = re.compile(ours), re.compile(theirs)
        self.count = 0

    def matches(self, difference):
        return (difference.kind in self.kinds and self.call.search(difference.call) and
                self.ours.search(str(difference.ours)) and self.theirs.search(str(difference.theirs)) and
                (self.test is None or self.test(difference)))


def all_zero(record):
    return record is not None and record.kind == "T" and not any(record.data)


def is_none(record):
    return record is None or record.kind == "0" or record.kind == "B" and record.data == "false"


def programs_with(text):
    """A test: does the program's text hold this?"""
    pattern = re.compile(text)
    return lambda difference: any(pattern.search(statement.lua()) for statement in difference.statements)


def spreads_nan(difference):
    """PyTorch's result is nan where accelhost's is a number."""
    if difference.ours.kind != "T" or not difference.ours.tensor().is_floating_point():
        return False
    ours, theirs = difference.ours.tensor(), difference.theirs.tensor()
    apart = ~((ours == theirs) | (ours.isnan() & theirs.isnan()))
    return bool((~theirs[apart].isfinite()).any() or (theirs.isfinite() & ~ours.isfinite()).sum() == 0 and
                (~theirs.isfinite()).any())


def beyond_numbers(difference):
    """One side or the other is no finite number wherever they differ."""
    ours, theirs = difference.ours.tensor(), difference.theirs.tensor()
    apart = ~((ours == theirs) | (ours.isnan() & theirs.isnan()) | ((ours - theirs).abs() < 1e-3 * theirs.abs()))
    return bool((~ours.isfinite() | ~theirs.isfinite())[apart].all())


def nearly(difference, relative=1e-6):
    """Do the two sides agree to about float32's precision?"""
    ours, theirs = difference.ours.tensor().double(), difference.theirs.tensor().double()
    return bool((((ours - theirs).abs() <= relative * theirs.abs()) | (ours == theirs)).all())


def copies_itself(difference):
    """Is there a copy_ between tensors of one storage?"""
    for statement in difference.statements:
        for target, source in re.findall(r"(\w+):copy_\((\w+)\)", statement.lua()):
            records = [difference.records.get(name) for name in (target, source)]
            if all(records) and records[0].storage == records[1].storage:
                return True
    return False


def has_nan(difference):
    return any(r.kind == "T" and r.tensor().isnan().any() for r in difference.records.values())


def is_empty(difference):
    return difference.theirs.kind == "T" and 0 in difference.theirs.shape


def of_leaf_view(difference):
    """A view that PyTorch says requires a gradient because its base does, though no history joins them."""
    return difference.ours.flags == "-l" and difference.theirs.flags == "rl"


def without_gradient(difference):
    """A result that has a history in PyTorch, whose gradient is an error, and none here."""
    return difference.ours.flags == "-l" and difference.theirs.flags == "r-"


UNARY_LEAF = r"a (view of a )?leaf that requires grad cannot be changed in place"

# What may make a tensor of no element.
EMPTY = r"\{[^}\"]*\b0\b[^}\"]*\}|narrow|arange|nonzero|split|chunk|\[\{|masked_select|repeat|expand"

KNOWN = [
    # Calls that one side refuses.
    Known("calls with more forms than PyTorch's: options in any combination, numbers for tensors",
          "error", ours=r"^\.$", theirs=r"^TypeError"),
    Known("dtypes for which PyTorch has no kernel", "error", ours=r"^\.$",
          theirs=r"not implemented for|does not support|only supports floating|^NotImplementedError"),
    Known("0-dim tensors have a dim 0 (and -1) wherever a dim is given, in PyTorch almost everywhere", "error",
          call="repeat_interleave|take_along_dim", ours=r"^\.$",
          theirs=r"tensor has no dimensions|range of \[-1, 0\], but got 1"),
    Known("in-place logicals check the leaf as every op does; PyTorch's do not", "error",
          call="logical_(and|or|xor|not)_", ours=UNARY_LEAF, theirs=r"^\.$"),
    Known("the implicit dim of softmax, deprecated in PyTorch, is an error", "error", call=r"F\.(log_)?softmax",
          ours=r"\(dim\) is missing"),
    Known("a write into an expanded tensor is refused always; PyTorch lets some ops do it", "error",
          ours="cannot write in place into an expanded tensor", theirs=r"^\.$"),
    Known("no products of bool", "error", ours="bool has no product", theirs=r"^\.$"),
    Known("a sum or product into bool has no gradient in PyTorch either, which says so at the call", "error",
          call="prod|sum|cumsum", theirs="Autograd not support dtype"),
    Known("multinomial without replacement refuses to draw weights of 0", "error", call="multinomial",
          ours="weights above 0, fewer than"),
    Known("adaptive pooling checks the number of dims; PyTorch takes one too few", "error",
          call=r"F\.adaptive_avg_pool2d", ours="expected input"),
    Known("dtypes that promote, and overlaps that are copied first, where PyTorch refuses them", "error", ours=r"^\.$",
          theirs="Index put requires the source|expected dtype|of the input tensor and the written-to tensor refer|"
                 "value cannot be converted to type|doesn't match the broadcast"
                 "|betas must be either|result type \\w+ can't be cast"),
    Known("keys and values of one length", "error", call=r"F\.scaled_dot_product_attention",
          ours="expected query|attn_mask: shapes"),
    Known("convolutions of integers, and of no channels", "error", call=r"F\.conv.*", theirs=r"^\.$",
          ours="expected a floating input|does not fit weight .*, 0,"),
    Known("take_along_dim keeps the index itself, PyTorch an expanded copy", "error", call="backward",
          ours="gather: argument 3 .* was changed in place", theirs=r"^\.$"),
    Known("a leaf taken out of the graph by detach_ no longer guards its views", "error", ours=r"^\.$",
          theirs="a view of a leaf Variable", test=programs_with("detach_")),
    Known("dropout of integers", "error", call=r"F\.dropout", ours="expected a floating input", theirs=r"^\.$"),
    Known("a view that was made anew after a write into its base may be gone through once",
          "error", call=r"backward|autograd\.grad",
          ours="backward of as_strided: the graph was already used", theirs=r"^\.$"),
    Known("adaptive pooling of integers to nothing", "error", call=r"F\.adaptive_avg_pool[12]d",
          ours="expected a floating input"),
    Known("addcdiv of integers divides", "error", call="addcdiv_?", theirs="Integer division with addcdiv"),
    Known("channel-wise dropout of inputs without channels, deprecated in PyTorch, is an error", "error",
          call=r"F\.dropout2d|m\d", ours="dropout2d: expected an input"),
    Known("integer layers: F.linear takes floating tensors", "error", call=r"F\.linear", ours="expected a floating"),
    Known("PyTorch asks nothing of an empty tensor's dtype", "error",
          ours=r"expected a floating input|expected input \(N, C|expected query|dtypes differ|"
          r"expected a floating dtype",
          theirs=r"^\.$", test=programs_with(EMPTY)),
    Known("detach_ of a view without history does nothing here", "error", call="detach_", ours=r"^\.$",
          theirs="Can't detach views in-place"),
    Known("F.conv1d and F.conv2d take their padding in numbers; nn.Conv1d and nn.Conv2d know \"same\"", "error",
          call=r"F\.conv[12]d", ours="padding.*: expected|expected an integer, got string"),
    Known("sizes of no element are refused where they are a mistake in a model", "error", theirs=r"^\.$",
          ours="has no size|output_size: expected at least 1|has empty planes"),
    Known("activations that PyTorch runs on integers by accident", "error", call=r"F\.(hardtanh|relu6)",
          ours="expected a floating input|outside the range of uint8", theirs=r"^\.$"),
    Known("PyTorch asks for several values per channel of a group", "error", call=r"F\.group_norm|m\d",
          theirs="more than 1 value per channel"),
    Known("detach_ of a result with a history: use detach()", "error", call="detach_", ours="only leaves",
          theirs=r"^\.$"),
    Known("nll_loss of one sample takes a 0-dim target", "error", call=r"F\.nll_loss|m\d", ours="does not fit input",
          theirs=r"^\.$"),
    Known("what PyTorch cannot derive is a constant here", "error", call=r"backward|autograd\.grad", ours=r"^\.$",
          theirs="derivative for .* is not implemented"),
    Known("the largest of nothing is 0 in a norm of gradients", "error", call="nn.utils.clip_grad_norm_", ours=r"^\.$",
          theirs="on an empty tensor"),
    Known("attention has derivatives of every order", "error", call="backward|autograd.grad", ours=r"^\.$",
          theirs="flash_attention_for_cpu_backward is not implemented"),
    Known("binary_cross_entropy_with_logits has the gradient of its weights, too", "error", ours=r"^\.$",
          theirs="not differentiable with respect to argument"),
    Known("an index out of range is an error for sizes of 1, too", "error", call="take_along_dim",
          ours="is outside 0..0"),
    Known("a view made without gradients is no input of a derivative", "error", call="autograd.grad",
          ours="does not require grad", test=programs_with("no_grad")),
    Known("label_smoothing is a share", "error", ours=r"label_smoothing: expected 0..1"),
    Known("an op that writes by index does not read what it writes", "error", ours="shares memory with .* written"),
    Known("the kernel of a convolution has as many sizes as dims", "error", ours="expected a number or a table of"),
    Known("cosine_similarity of integers", "error", call=r"F\.cosine_similarity", ours="expected a floating input"),
    Known("pooling and F.linear of integers, and of weights of one dim", "error",
          call=r"F\.(max_pool\dd|avg_pool\dd|linear)|m\d",
          ours="expected a floating input, got int|does not fit weight", theirs=r"^\.$"),
    Known("hard to tell from a mistake: two dtypes in one loss", "error",
          call=r"F\.(binary_cross_entropy.*|cross_entropy)|m\d",
          ours="expected a (target|weight) like the input|expected weight \\w+ of|pos_weight \\w+ .* does not fit",
          theirs=r"^\.$"),
    Known("pooling's output_size may be a table of one", "error", ours=r"^\.$", theirs="output_size must be"),
    Known("the norm of nothing is 0 for every p", "error", call="norm", ours=r"^\.$", theirs="on an empty tensor"),
    Known("a derivative that is constant has no history, and a backward through it says so", "error",
          call=r"backward|autograd\.grad", ours="does not require grad", theirs=r"^\.$",
          test=programs_with("create_graph|unique|bernoulli|floor_divide|no_grad|requires_grad_")),
    Known("what a gradient does not need is not saved, and may be written", "error", call=r"backward|autograd\.grad",
          ours=r"^\.$", theirs="modified by an inplace operation|through the graph a second time"),
    Known("a size that hangs on whether two nan are the same", "error", theirs="must match|mismatch",
          test=programs_with("unique")),
    # Histories.
    Known("integers never require a gradient", "flags",
          test=lambda d: d.theirs.dtype in ("int64", "int32", "uint8", "bool")),
    Known("comparisons and logicals written in place: a history of zeros, in PyTorch of the comparisons alone",
          "flags missing",
          test=lambda d: programs_with(r":(eq|ne|lt|le|gt|ge|logical_\w+)_\(")(d)),
    Known("a derivative that is constant has a history on one side only", "flags", call=r"autograd\.grad"),
    Known("views made without gradients, or before their base required them, have no gradient", "flags",
          test=of_leaf_view),
    Known("nothing where PyTorch's addmm with beta = 0 hands zeros to its input", "missing flags",
          test=lambda d: (d.ours is None or d.kind == "flags") and programs_with(r"beta = 0\b")(d)),
    Known("dropout1d that does nothing returns its input; PyTorch's a view of two dims", "flags",
          call=r"F\.dropout1d|m\d", test=programs_with("ropout1d")),
    Known("what is empty may be the input itself", "alias flags", test=is_empty),
    Known("results whose gradient PyTorch refuses at backward have none here", "flags",
          call="unique|floor_divide|bincount|bernoulli", test=without_gradient),
    Known("views of split and unbind stay usable after a write into their base; PyTorch gives them up", "kind error",
          theirs="is a view and (its base or|is being)|multiple views|view was created in no_grad mode"),
    Known("a norm with p = 0 has a gradient, of zeros", "missing kind", test=programs_with("norm.*p = 0")),
    Known("nothing where the other side has zeros through a graph that no number reaches", "missing kind",
          test=lambda d: is_none(d.ours) and all_zero(d.theirs) or is_none(d.theirs) and all_zero(d.ours)),
    Known("two inputs' gradients may be views of one tensor in PyTorch, as nothing there is written in place", "alias",
          test=lambda d: d.name.endswith(".grad")),
    Known("results are row-major here; PyTorch keeps the order of the input's memory, and then has to copy", "alias",
          call="contiguous|reshape|reshape_as|flatten|unflatten|m\\d"),
    Known("max and min take another tensor under the name dim, too", "shape value dtype", call="max|min",
          test=programs_with(r"dim = x\d")),
    # Values.
    Known("PyTorch's gradient at nan, or of kl_div at a target of 0, is another non-number", "value",
          test=lambda d: (d.name.endswith(".grad") or d.call == "autograd.grad") and beyond_numbers(d)),
    Known("the gradient of an element that is nan", "value", test=lambda d: has_nan(d) and (
        d.name.endswith(".grad") or d.call == "autograd.grad")),
    Known("PyTorch's second derivative of abs is memory that nobody wrote", "value",
          test=lambda d: all_zero(d.ours) and programs_with(r"abs|l1_loss|L1Loss|norm|distance")(d) and
          programs_with("create_graph")(d)),
    Known("what fails changes nothing; PyTorch divides up to the zero", "value",
          test=programs_with(r":(floor_divide|remainder|fmod|div)_\(")),
    Known("prod into a narrow dtype has a gradient of the input's precision", "value",
          test=programs_with(r"prod\(.*dtype")),
    Known("halves are computed in float32: what PyTorch's own overflow in between makes nan is a number", "value",
          ours="float16", test=lambda d: spreads_nan(d) or beyond_numbers(d)),
    Known("an integer is compared with a half as float32; PyTorch makes it a half, which may be infinite", "value",
          call="(eq|ne|lt|le|gt|ge)_?", test=programs_with("float16")),
    Known("integers of arange are cut off from exact steps; PyTorch's step is cut off", "value", call="arange",
          ours="^u?int"),
    Known("a weight of a wider dtype widens a loss", "dtype", call=r"F\.binary_cross_entropy.*|m\d"),
    Known("a number and a 0-dim tensor as bounds promote as an operand does", "dtype", call="clamp_?"),
    Known("draws into a result whose memory PyTorch orders as its input's", "value",
          test=lambda d: programs_with(r"(random|uniform|normal|exponential|bernoulli)_?\(|_like|ropout")(d) and
          programs_with(r"nonzero|transpose|permute|diagonal|swap|movedim|:t\(")(d)),
    Known("a padded convolution multiplies no zeros with nan or inf", "value", call=r"F\.conv.*|m\d", test=spreads_nan),
    Known("the mean of an infinite row is infinite, also beside its variance", "value", call="(std|var)_mean",
          test=spreads_nan),
    Known("copy_ from a part of the same tensor copies it first", "value", test=copies_itself),
    Known("gelu of infinity is infinity; in PyTorch's float32 it is nan", "value", call=r"F\.gelu", test=spreads_nan),
    Known("linspace of integers is cut off from exact steps; PyTorch's step is cut off, too", "value", call="linspace",
          ours="^(u?int)"),
    Known("a remainder of numbers whose quotient overflows", "value", call="%|remainder_?|fmod_?|floor_divide_?",
          test=spreads_nan),
    Known("norms of numbers whose squares overflow", "value", ours="float(32|16)",
          test=lambda d: programs_with(r"e\+")(d) and programs_with("normalize|pairwise_distance|cosine")(d)),
    Known("a mean over weights of zero with label smoothing", "value", call=r"F\.cross_entropy|m\d",
          test=lambda d: programs_with("label_smoothing")(d) and beyond_numbers(d)),
    Known("random integers of more than 24 bits in float32", "value", call="randint", ours="^float32"),
    Known("PyTorch's hardsigmoid has the derivative 1/6 in float32", "value",
          test=lambda d: programs_with("[hH]ardsigmoid")(d) and nearly(d)),
    Known("a variance without elements is nan; with a negative correction PyTorch divides by it", "value",
          call="(var|std)(_mean)?", test=programs_with("correction = -")),
    Known("circular padding that also cuts; PyTorch leaves memory unwritten", "value", call=r"F\.pad",
          test=programs_with("circular")),
    Known("the second derivative of softplus at its threshold", "value",
          test=lambda d: programs_with("[sS]oftplus.*threshold")(d) and programs_with("create_graph")(d)),
    Known("normalisation keeps sums in float64, where PyTorch's float32 overflows or meets inf * 0", "value",
          call=r"m\d|F\.(layer|group|batch)_norm", test=spreads_nan),
    Known("a masked position does not spread its nan", "value", call=r"F\.scaled_dot_product_attention|m\d",
          test=lambda d: spreads_nan(d) and programs_with("scaled_dot|Multihead|Transformer")(d)),
    Known("ties of topk may fall either way", "value", call="topk", ours="^int64"),
    Known("second derivatives of binary_cross_entropy at 0 and 1, which PyTorch's formula makes huge", "value",
          test=lambda d: programs_with(r"binary_cross_entropy\(|BCELoss")(d) and programs_with("create_graph")(d)),
    Known("fractions in alpha and beta of integer products promote; PyTorch cuts them off", "dtype",
          call="addmm|baddbmm", test=programs_with(r"(alpha|beta) = -?\d*\.\d")),
    Known("bincount of nothing keeps the dtype of its weights", "dtype", call="bincount", ours=r"\[\] *$|\[0+\.0"),
]


def known(difference):
    """The entry that a difference is an instance of, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry
    return None
