"""Calls of the op table: the arguments of a call are chosen by its row's signature, by the parameter's name, or by a
maker of its own where the arguments have to fit each other."""

import torch
import torch.nn.functional as F

from generate import FLOATS, HALVES, Give
from makers import MAKERS
from program import Binary, Call, Do, Dtype, Index, NoGrad, Raw, Ref, Set

# Ops without a counterpart of the same meaning in PyTorch, or whose call is made elsewhere.
SKIP = {"index", "dropout_", "empty", "empty_like", "as_strided", "is_tensor", "index_put", "slice"}
# Options that PyTorch accepts by position, in the table's order.
POSITIONAL = {"dim", "keepdim", "dims", "start_dim", "end_dim", "diagonal", "offset", "dim1", "dim2", "num_classes",
              "descending", "largest", "sorted", "stride", "padding", "dilation", "groups", "bias", "weight", "m",
              "min", "max", "min_val", "max_val", "negative_slope", "shifts", "end_", "step"}
ALWAYS_POSITIONAL = {"from", "to"}  # Python keeps the word `from` for itself
# PyTorch has these names with other parameters.
NOT_A_FUNCTION = {"dropout", "bernoulli_", "conv1d", "conv2d", "max_pool2d"}
MANY_PARTS = 20  # a line of Lua has 200 names at most
STRINGS = {"rounding_mode": ["floor", "trunc"], "reduction": ["mean", "sum", "none"], "approximate": ["none", "tanh"]}
WEIGHTS = {"add": 3, "mul": 3, "sub": 2, "div": 3, "pow": 3, "sum": 3, "mean": 2, "matmul": 3, "clamp": 2, "where": 2,
           "cat": 2, "norm": 2, "var": 2, "std": 2, "to": 2, "cross_entropy": 2, "conv2d": 2, "copy_": 2}


class Row:
    """A row of the op table and the forms that both sides have."""

    def __init__(self, name, signature, flags):
        self.name = name
        self.params = [self.param(p) for p in signature.split(", ")] if signature else []
        self.forms = []
        if "m" in flags and hasattr(torch.Tensor, name):
            self.forms.append("method")
        if "f" in flags and hasattr(torch, name) and name not in NOT_A_FUNCTION:
            self.forms.append("")
        if "F" in flags and hasattr(F, name):
            self.forms.append("F")
        self.inplace = "i" in flags and hasattr(torch.Tensor, name + "_")

    @staticmethod
    def param(text):
        name, kind = text.split(":")
        optional = kind[1:2] == "?" or "=" in kind
        return name, kind[0], optional


class OpTable:
    def __init__(self, rows):
        self.rows = [Row(name, *row) for name, row in rows.items() if name not in SKIP]
        self.rows = [row for row in self.rows if row.forms or row.inplace]
        self.weights = [WEIGHTS.get(row.name, 1) for row in self.rows]

    def choose(self, g):
        return g.random.choices(self.rows, self.weights)[0]


def emit_op(g, row):
    """A call of an op, with names for its results."""
    arguments = MAKERS[row.name](g) if row.name in MAKERS else default_arguments(g, row)
    inplace = row.inplace and (not row.forms or g.chance(0.2))
    form = "method" if inplace else g.choice(row.forms)
    name = row.name + ("_" if inplace else "")
    target = arguments.get(row.params[0][0]) if row.params else None
    if form == "method" and not isinstance(target, Ref):
        if "" not in row.forms:
            raise Give
        form = ""
    call = spell(g, row, name, form, arguments)
    quiet = g.chance(0.25 if inplace or row.name.endswith("_") else 0.05)
    if (inplace or row.name.endswith("_")) and g.chance(0.5):
        g.emit(NoGrad(Do(call)) if quiet else Do(call))
    else:
        g.let(call, quiet=quiet)


def spell(g, row, name, form, arguments):
    """The call: what is required by position, the rest by name, or by position as far as PyTorch allows."""
    words, options = [], []
    positional = g.chance(0.4)
    for param, _, optional in row.params:
        if param not in arguments:
            positional = False
        elif optional and param not in ALWAYS_POSITIONAL and not (positional and param in POSITIONAL and not options):
            options.append((param, arguments[param]))
        elif options:
            raise Give
        else:
            words.append(arguments[param])
    if form == "method":
        return Call(words[0], name, tuple(words[1:]), tuple(options))
    return Call(form, name, tuple(words), tuple(options))


def default_arguments(g, row):
    """Arguments by the kinds and names of the parameters."""
    arguments, value = {}, None
    for i, (name, kind, optional) in enumerate(row.params):
        if optional and g.chance(0.55):
            continue
        if i == 0 and kind in "TO":
            ref = g.pick()
            value = g.value(ref)
            arguments[name] = ref
            continue
        chosen = default_argument(g, row, name, kind, arguments, value)
        if chosen is not None:
            arguments[name] = chosen
    return arguments


def default_argument(g, row, name, kind, arguments, value):
    if kind == "T":
        if name == "mask" or name == "condition":
            return g.literal(g.broadcastable(value.shape), "bool")
        return g.other(arguments[row.params[0][0]])
    if kind == "O":
        return g.number() if g.chance(0.4) else g.other(arguments[row.params[0][0]])
    if kind == "I":
        return g.dims(value) if value is not None else list(g.shape())
    if kind == "i":
        return g.dim(value) if name.startswith("dim") and value is not None else g.integer(-2, 3)
    if kind == "n":
        return g.number()
    if kind == "b":
        return g.chance(0.6)
    if kind == "d":
        return Dtype(g.choice(FLOATS + HALVES + ("int64", "int32", "uint8", "bool")))
    if kind == "s":
        return g.choice(STRINGS.get(name, ["mean"]))
    raise Give


# Statements outside of the table.

def emit_operator(g):
    left = g.pick()
    symbol = g.choice("+-*/^%")
    right = g.number() if g.chance(0.35) else g.other(left)
    if g.chance(0.2) and not isinstance(right, Ref):
        left, right = right, left
    if g.chance(0.1):
        return g.let(Raw(f"-{left.lua()}", f"-{left.py()}")) if isinstance(left, Ref) else None
    if not isinstance(left, Ref) and left < 0:
        raise Give  # -1 ^ x binds otherwise
    return g.let(Binary(symbol, left, right))


def items_for(g, value):
    """The items of an index."""
    items = []
    dims = list(value.shape)
    if g.chance(0.1):
        items.append("...")
        dims = dims[-1:]
    if not dims:
        raise Give
    for size in dims[:g.integer(1, len(dims))]:
        kind = g.random.choices(["int", "all", "from", "slice", "step", "tensor", "mask"], [5, 3, 2, 4, 2, 2, 1])[0]
        if kind == "int":
            items.append(g.integer(-size, max(size - 1, 0)) if not g.chance(0.03) else g.integer(-8, 8))
        elif kind == "all":
            items.append(())
        elif kind == "from":
            items.append((g.integer(-size, size), size))
        elif kind == "slice":
            items.append((g.integer(-size - 1, size), g.integer(-size - 1, size + 2)))
        elif kind == "step":
            items.append((g.integer(0, size), g.integer(0, size + 1), g.integer(1, 3)))
        elif kind == "tensor" and size:
            shape = g.choice([(2,), (3,), (1,), (), (2, 2)])
            items.append(g.literal(shape, g.choice(["int64", "int64", "int32"]), -size, size - 1))
        else:
            items.append(g.literal((size,), "bool"))
    return tuple(items)


def emit_index(g):
    source = g.pick(low=1)
    items = items_for(g, g.value(source))
    if g.chance(0.6):
        return g.let(Index(source, items), "v")
    place = Index(source, items)
    if g.chance(0.5):
        value = g.number()
    else:
        try:
            shape = g.torch.evaluate(place).shape
        except Exception as error:
            raise Give from error
        value = g.pick(shape=g.broadcastable(shape), fresh=0.6)
    return g.emit(Set(place, value))


def emit_split(g):
    source = g.pick(low=1)
    value = g.value(source)
    dim = g.dim(value)
    size = value.shape[dim] if -value.dim() <= dim < value.dim() else 2
    if size > MANY_PARTS:
        raise Give
    kind = g.choice(["split", "split", "chunk", "unbind"])
    if kind == "split":
        parts = g.integer(1, size + 1)
        if g.chance(0.4) and size > 1:
            first = g.integer(0, size)
            parts = [first, size - first]
        return g.let(Call(source, "split", (parts, dim), ()), "p", "table")
    if kind == "chunk":
        return g.let(Call(source, "chunk", (g.integer(1, 4), dim), ()), "p", "table")
    return g.let(Call(source, "unbind", (dim,), ()), "p", "table") if size else None


def emit_small(g):
    """Methods that are no ops, and what is done to a tensor's place in the graph."""
    ref = g.pick()
    value = g.value(ref)
    kind = g.choice(["cast", "item", "tolist", "requires", "detach", "data", "type_as", "new", "size", "retain",
                     "zero_grad", "detach_", "equal", "allclose"])
    if kind == "cast":
        name = g.choice(["float", "double", "half", "bfloat16", "long", "int", "byte", "bool"])
        return g.let(Call(ref, name, (), ()))
    if kind in ("item", "tolist"):
        if value.numel() != 1 and not g.chance(0.2) or value.numel() and value.dtype == torch.int64 and \
                value.abs().max() > 2**53:
            raise Give
        return g.let(Call(ref, "item", (), ()), "n")
    if kind == "requires":
        return g.emit(Do(Call(ref, "requires_grad_", (), () if g.chance(0.6) else (("requires_grad", False),))))
    if kind == "detach":
        return g.let(Call(ref, "detach", (), ()), "v")
    if kind == "data":
        return g.let(Ref(ref.fields[0] + ".data"), "v")
    if kind == "type_as":
        return g.let(Call(ref, "type_as", (g.pick(),), ()))
    if kind == "new":
        return g.let(Call(ref, g.choice(["new_zeros", "new_ones"]), (list(g.shape()),), ()), "x")
    if kind == "size":
        return g.let(Call(ref, g.choice(["dim", "numel", "element_size"]), (), ()), "n")
    if kind == "retain":
        return g.emit(Do(Call(ref, "retain_grad", (), ())))
    if kind == "zero_grad":
        return g.emit(Set(Ref(ref.fields[0] + ".grad"), None)) if value.is_leaf else None
    if kind == "detach_":
        return g.emit(Do(Call(ref, "detach_", (), ())))
    other = g.pick(shape=value.shape, dtype=str(value.dtype)[6:])
    return g.let(Call("", kind, (ref, other), ()), "n")
