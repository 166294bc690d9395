"""What differs between two outcomes of a program, and whether rounding explains it.

Integers, booleans, shapes, dtypes, flags and errors must be equal; floating numbers within a tolerance of their dtype.
A number outside it is asked again: PyTorch runs the program with noise of a few units in the last place on every
floating result, and what the noise moves as far (or turns into another integer, infinity or nan) is rounding."""

import re

import torch

from program import NoGrad, call_of, names_of
from sides import DTYPES, Torch

# dtype: (relative, absolute)
TOLERANCE = {"float64": (1e-9, 1e-11), "float32": (1e-5, 1e-6), "float16": (4e-3, 1e-4), "bfloat16": (3e-2, 1e-3)}
NOISE_RUNS = 4
ROOM = 20  # times the spread of the noisy runs
GRADIENTS = ("backward", "autograd.grad")
TURN = {"error": 0, "raw": 0, "value": 2, "alias": 3}
SCALES = (4.0, 64.0)  # of the noise, in units of the last place: tried in turn


class Difference:
    """kind: "crash", "error" (only one side fails), "missing", "dtype", "shape", "flags", "alias", "value", "scalar".
    `place` is the number of the statement that it shows in first, `name` the variable."""

    def __init__(self, kind, place, name, ours, theirs, statements):
        self.kind, self.place, self.name = kind, place, name
        self.ours, self.theirs = ours, theirs
        self.statements, self.records, self.our_records = statements, {}, {}  # of all variables, PyTorch's and ours
        self.statuses = []  # PyTorch's, of each statement
        self.call = call_of(statements[place]) if place is not None else ""

    def __str__(self):
        return f"{self.kind} {self.call} {self.name}: ours {self.ours}, PyTorch {self.theirs}"


def compare(ours, theirs, statements, apart_from=()):
    """The first difference between two outcomes, by statement and apart from these variables, or None."""
    if ours.crash:
        return Difference("crash", None, "", ours.crash, "", statements)
    found = [(i, *what) for i, what in enumerate(map(differing_status, ours.statuses, theirs.statuses)) if what]
    found += [item for item in differing_records(ours, theirs, statements) if item[2] not in apart_from]
    if not found:
        return None
    place, what, name, mine, record = min(found, key=lambda item: (turn(item, statements), item[0]))
    difference = Difference(what, place, name, mine, record, statements)
    difference.records, difference.our_records, difference.statuses = theirs.records, ours.records, theirs.statuses
    return difference


def turn(item, statements):
    """Which differences are judged first: a variable may hold what a later failure left there, a gradient may fail
    for want of a history, a statement for want of a variable."""
    place, what, _, ours, _ = item
    if what == "error" and "(a nil value)" in ours:
        return TURN["alias"]
    return 1 if what == "error" and call_of(statements[place]) in GRADIENTS else TURN.get(what, 1)


def differing_status(mine, other):
    """How the statuses of one statement differ, as (kind, name, ours, theirs), or None."""
    if (mine == ".") != (other == "."):
        return "error", "", mine, other
    return ("raw", "", mine, other) if mine != "." and is_raw(mine) else None


def differing_records(ours, theirs, statements):
    """(place, kind, name, ours, theirs) of each variable: at the statement that made it, a gradient at the last
    backward, so that what it was computed from comes first."""
    maker, backward = {}, 0
    for i, statement in enumerate(statements):
        for name in names_of(statement):
            maker.setdefault(name, i)
        if call_of(statement) in GRADIENTS:
            backward = i
    found = []
    for name in {**theirs.records, **ours.records}:
        mine, record = ours.records.get(name), theirs.records.get(name)
        if mine is None or record is None:
            what = "missing" if (mine or record).kind != "0" or mine is None else None
        else:
            what = differs(mine, record)
        if what:
            place = backward if name.endswith(".grad") else maker.get(name.split(".")[0], 0)
            found.append((place, what, name, mine, record))
    return found


def is_raw(text):
    """Is this an error from inside the library or the interpreter, not one that names what was expected?"""
    return ("attempt to" in text or "bad argument" in text) and "accelhost" in text


def differs(mine, other):
    """In what two records differ, or None."""
    if mine.kind == other.kind == "E":
        return None
    if mine.kind != other.kind:
        unused = mine.kind == "B" and mine.data == "false" and other.kind == "0"  # autograd.grad's None
        return None if unused else "kind"
    if mine.kind == "T":
        if mine.dtype != other.dtype:
            return "dtype"
        if mine.shape != other.shape:
            return "shape"
        if mine.flags != other.flags:
            return "flags"
        if mine.data != other.data and not close(mine.tensor(), other.tensor(), mine.dtype).all():
            return "value"
        return "alias" if mine.storage != other.storage else None
    if mine.kind == "N":
        pair = torch.tensor([[mine.data, other.data]], dtype=torch.float64)
        return None if close(pair[:, 0], pair[:, 1], "float64").all() else "scalar"
    return None if mine.data == other.data else "scalar"


def close(mine, other, dtype):
    if dtype not in TOLERANCE:
        return mine == other
    relative, absolute = TOLERANCE[dtype]
    mine, other = mine.double(), other.double()
    same = (mine == other) | (mine.isnan() & other.isnan())
    finite = other[other.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    floor = absolute * (largest if dtype in ("float16", "bfloat16") else min(1.0, largest))
    room = relative * torch.maximum(mine.abs(), other.abs()) + floor
    room += torch.finfo(DTYPES[dtype]).tiny  # some kernels flush it to zero
    return same | mine.isfinite() & other.isfinite() & ((mine - other).abs() <= room)


def shaken(tensor, scale, generator):
    """Factors that move a tensor's elements by some units in the last place."""
    unit = torch.finfo(tensor.dtype).eps
    noise = torch.empty(tensor.shape, dtype=torch.float64).uniform_(-1, 1, generator=generator)
    return (1 + (scale * unit * noise if unit < 1e-3 else unit * noise.sign())).to(tensor.dtype)


def perturb(scale, generator):
    """A function that adds noise to the floating results of a statement; a module's layers add it to theirs."""
    def hook(_module, _inputs, result):
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            return result * shaken(result.detach(), scale, generator)
        return None

    def after(environment, statement):
        while isinstance(statement, NoGrad):
            statement = statement.fields[0]
        for name in names_of(statement):
            value = environment.get(name)
            values = [value]
            if isinstance(value, torch.nn.Module):
                values = list(value.parameters())
                for layer in value.modules():
                    layer.register_forward_hook(hook)
            for tensor in values:
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and is_alone(tensor, environment):
                    tensor.data.mul_(shaken(tensor.data, scale, generator))
    return after


def is_alone(tensor, environment):
    """Does no other variable share the tensor's memory?"""
    storage = tensor.untyped_storage()._cdata
    return not tensor._is_view() and not tensor._is_zerotensor() and not any(
        isinstance(other, torch.Tensor) and other is not tensor and other.untyped_storage()._cdata == storage
        for other in environment.values())


def without_rounding(difference, ours, theirs):
    """The first difference between the outcomes that the noise of rounding does not explain, or None."""
    if difference.kind not in ("value", "scalar"):
        return difference
    floor = layer_floor(difference)
    generator = torch.Generator()
    generator.manual_seed(1)
    open_names = {name: record for name, record in theirs.records.items()
                  if name in ours.records and differs(ours.records[name], record) in ("value", "scalar")}
    rounded, runs = set(), []
    for scale in SCALES:
        for _ in range(NOISE_RUNS):
            state = torch.get_rng_state()
            runs.append(Torch.outcome(difference.statements, perturb(scale, generator)))
            torch.set_rng_state(state)
        rounded |= {name for name, record in open_names.items() if name not in rounded and
                    explained(ours.records[name], record, [run.records.get(name) for run in runs], floor,
                              2 * narrowest(difference))}
        if len(rounded) == len(open_names):
            break
    return compare(ours, theirs, difference.statements, rounded)


def layer_floor(difference):
    """Units of the last place of 1 by which results of layers may differ; more where a small variance divides."""
    text = " ".join(statement.lua() for statement in difference.statements)
    if "norm" in text or "Norm" in text or "Transformer" in text:
        return 1024.0
    return 128.0 if "nn." in text or "F." in text else 0.0


def narrowest(difference):
    """The unit in the last place of the narrowest half that the program names, or 0."""
    text = " ".join(statement.lua() for statement in difference.statements)
    found = re.findall(r"\b(b?float16|half)\b", text)
    return max([torch.finfo(DTYPES.get(name, torch.float16)).eps for name in found], default=0.0)


def explained(mine, other, noisy, floor=0.0, narrow=0.0):
    """Is the distance between two records within the noise? Below `floor` units of the last place of 1, or of the
    largest, it always is: inside a layer numbers of that size cancel, where no noise is added; so it is below `narrow`
    of the number itself: an op may go through a narrower dtype."""
    if mine.kind == "N":
        spread = max(abs(n.data - other.data) for n in noisy if n is not None and n.kind == "N")
        return abs(mine.data - other.data) <= ROOM * spread
    if any(n is None or n.kind != "T" or n.shape != other.shape for n in noisy):
        return True  # even the shape hangs on the noise
    base, value = other.tensor().double(), mine.tensor().double()
    apart = ~close(mine.tensor(), other.tensor(), mine.dtype)
    spread = torch.zeros_like(base)
    for record in noisy:
        moved = (record.tensor().double() - base).abs()
        same = (record.tensor() == other.tensor()) | (record.tensor().isnan() & other.tensor().isnan())
        spread = torch.maximum(spread, torch.where(same, 0.0, torch.where(moved.isnan(), float("inf"), moved)))
    distance = (value - base).abs()
    if mine.dtype in TOLERANCE:
        distance -= narrow * torch.maximum(value.abs(), base.abs())
    floor *= torch.finfo(DTYPES[mine.dtype]).eps if base.numel() and mine.dtype in TOLERANCE else 0.0
    floor *= max(1.0, base[base.isfinite()].abs().max().item() if base.isfinite().any() else 1.0)
    return bool((~apart | (spread == float("inf")) | (distance <= ROOM * spread + floor)).all())


__all__ = ["DTYPES", "Difference", "compare", "without_rounding"]
