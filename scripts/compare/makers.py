"""Arguments of the ops whose arguments have to fit each other.

MAKERS: op name -> function(generator) -> {parameter: value}; parameters that the op lacks are ignored."""

from generate import Give
from program import Call, Dtype

MAKERS = {}


def maker(*names):
    def add(function):
        for name in names:
            MAKERS[name] = function
        return function
    return add


def some(g, arguments, name, value, p=0.5):
    """Add an optional argument now and then."""
    if g.chance(p):
        arguments[name] = value() if callable(value) else value
    return arguments


def number_of(value):
    count = 1
    for n in value:
        count *= n
    return count


# Shape.

@maker("view", "reshape")
def reshape(g):
    ref = g.pick()
    count = g.value(ref).numel()
    sizes = []
    while count > 1 and len(sizes) < 3:
        divisors = [d for d in range(1, count + 1) if count % d == 0]
        sizes.append(g.choice(divisors))
        count //= sizes[-1]
    if count != 1 or not sizes and g.chance(0.5):
        sizes.append(count)
    if sizes and g.chance(0.3):
        sizes[g.integer(0, len(sizes) - 1)] = -1
    if g.chance(0.03):
        sizes.append(2)
    return {"input": ref, "size": sizes, "shape": sizes}


@maker("view_as", "reshape_as")
def reshape_as(g):
    ref = g.pick()
    value = g.value(ref)
    return {"input": ref, "other": g.pick(lambda v: v.numel() == value.numel())}


@maker("unflatten")
def unflatten(g):
    ref = g.pick(low=1)
    dim = g.dim(g.value(ref))
    size = g.value(ref).shape[dim] if -g.value(ref).dim() <= dim < g.value(ref).dim() else 2
    first = g.choice([d for d in range(1, size + 1) if size % d == 0] or [1])
    return {"input": ref, "dim": dim, "sizes": [first, -1 if g.chance(0.5) else size // first]}


@maker("permute")
def permute(g):
    ref = g.pick()
    order = list(range(g.value(ref).dim()))
    g.random.shuffle(order)
    return {"input": ref, "dims": order}


@maker("movedim")
def movedim(g):
    ref = g.pick(low=1)
    rank = g.value(ref).dim()
    if g.chance(0.6):
        return {"input": ref, "source": g.dim(g.value(ref)), "destination": g.dim(g.value(ref))}
    count = g.integer(1, rank)
    return {"input": ref, "source": g.random.sample(range(rank), count),
            "destination": g.random.sample(range(rank), count)}


@maker("expand", "broadcast_to")
def expand(g):
    ref = g.pick()
    sizes = [g.integer(0, 3) if n == 1 else (-1 if g.chance(0.2) else n) for n in g.value(ref).shape]
    for _ in range(g.integer(0, 2) if g.chance(0.5) else 0):
        sizes.insert(0, g.integer(1, 3))
    return {"input": ref, "size": sizes}


@maker("expand_as")
def expand_as(g):
    ref = g.pick()
    return {"input": ref, "other": g.pick()}


@maker("select")
def select(g):
    ref = g.pick(low=1)
    value = g.value(ref)
    dim = g.dim(value)
    size = value.shape[dim] if -value.dim() <= dim < value.dim() else 1
    return {"input": ref, "dim": dim, "index": g.integer(-size, size - 1 if size and not g.chance(0.05) else size)}


@maker("narrow")
def narrow(g):
    ref = g.pick(low=1)
    value = g.value(ref)
    dim = g.dim(value)
    size = value.shape[dim] if -value.dim() <= dim < value.dim() else 1
    start = g.integer(-size, size)
    room = size - (start + size if start < 0 else start)
    return {"input": ref, "dim": dim, "start": start, "length": g.integer(0, room + (1 if g.chance(0.05) else 0))}


@maker("diagonal")
def diagonal(g):
    ref = g.pick(low=2)
    arguments = some(g, {"input": ref}, "offset", lambda: g.integer(-3, 3))
    if g.chance(0.4):
        arguments["dim1"], arguments["dim2"] = g.dim(g.value(ref)), g.dim(g.value(ref))
    return arguments


@maker("cat", "stack", "concat", "concatenate")
def cat(g):
    first = g.pick()
    value = g.value(first)
    dim = g.dim(value)
    items = [first]
    for _ in range(g.integer(0, 3)):
        shape = list(value.shape)
        if shape and g.chance(0.3):
            at = dim if -len(shape) <= dim < len(shape) else 0
            shape[at] = g.integer(0, 3)
        items.append(g.pick(shape=shape, fresh=0.3))
    g.random.shuffle(items)
    return some(g, {"tensors": items}, "dim", dim, 0.7)


@maker("flip")
def flip(g):
    ref = g.pick()
    dims = g.dims(g.value(ref))
    return {"input": ref, "dims": dims if isinstance(dims, list) else [dims]}


@maker("roll")
def roll(g):
    ref = g.pick()
    dims = g.dims(g.value(ref))
    if not isinstance(dims, list) and g.chance(0.4):
        return {"input": ref, "shifts": g.integer(-3, 4)}
    return {"input": ref, "dims": dims, "shifts": [g.integer(-3, 4) for _ in dims] if isinstance(dims, list)
            else g.integer(-3, 4)}


@maker("repeat", "tile")
def repeat(g):
    ref = g.pick(high=3)
    counts = [g.integer(0 if g.chance(0.1) else 1, 3) for _ in range(g.value(ref).dim() + g.integer(0, 1))]
    return {"input": ref, "repeats": counts, "dims": counts}


@maker("repeat_interleave")
def repeat_interleave(g):
    ref = g.pick()
    value = g.value(ref)
    if g.chance(0.6):
        return some(g, {"input": ref, "repeats": g.integer(0, 3)}, "dim", lambda: g.dim(value), 0.6)
    dim = g.dim(value)
    size = value.shape[dim] if -value.dim() <= dim < value.dim() else 1
    return {"input": ref, "repeats": g.literal((size,), "int64", 0, 3), "dim": dim}


# Indexing.

def index_of(g, size, shape=None, negative=False):
    if size < 1:
        raise Give
    shape = (g.integer(0, 4),) if shape is None else shape
    return g.literal(shape, "int64", -size if negative else 0, size - 1 if not g.chance(0.02) else size)


def along(g, ref):
    value = g.value(ref)
    dim = g.dim(value, 0)
    return value, dim, value.shape[dim] if value.dim() else 1


@maker("index_select")
def index_select(g):
    ref = g.pick(low=1)
    _, dim, size = along(g, ref)
    return {"input": ref, "dim": dim, "index": index_of(g, size)}


@maker("index_add", "index_copy")
def index_add(g):
    ref = g.pick(low=1)
    value, dim, size = along(g, ref)
    count = g.integer(1, max(size, 1))
    shape = list(value.shape)
    shape[dim] = count
    arguments = {"input": ref, "dim": dim, "source": g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5)}
    picked = g.random.sample(range(size), count) if size else []
    arguments["index"] = g.literal((count,), "int64", values=picked) if g.chance(0.6) and size \
        else index_of(g, size, (count,))
    return some(g, arguments, "alpha", g.number, 0.3)


@maker("index_fill")
def index_fill(g):
    ref = g.pick(low=1)
    _, dim, size = along(g, ref)
    return {"input": ref, "dim": dim, "index": index_of(g, size), "value": g.number()}


def gather_shape(g, value, dim):
    shape = [g.integer(1, n) if n else 0 for n in value.shape]
    if shape:
        shape[dim] = g.integer(1, 4)
    return shape


@maker("gather")
def gather(g):
    ref = g.pick()
    value, dim, size = along(g, ref)
    return {"input": ref, "dim": dim, "index": index_of(g, size, gather_shape(g, value, dim))}


@maker("take_along_dim")
def take_along_dim(g):
    ref = g.pick()
    value, dim, size = along(g, ref)
    if g.chance(0.2):
        return {"input": ref, "indices": index_of(g, value.numel(), (3,))}
    shape = [n if n == 1 or g.chance(0.8) else 1 for n in value.shape]
    if shape:
        shape[dim] = g.integer(1, 4)
    return {"input": ref, "indices": index_of(g, size, shape), "dim": dim}


@maker("scatter", "scatter_add")
def scatter(g):
    ref = g.pick()
    value, dim, size = along(g, ref)
    shape = [g.integer(1, n) if n else 0 for n in value.shape]
    if shape:  # places that differ: the result does not hang on an order
        shape[dim] = 1 if g.chance(0.7) else g.integer(1, size or 1)
    index = index_of(g, size, shape)
    if g.chance(0.3):
        return {"input": ref, "dim": dim, "index": index, "src": g.number()}
    return {"input": ref, "dim": dim, "index": index,
            "src": g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5)}


@maker("take")
def take(g):
    ref = g.pick()
    return {"input": ref, "index": index_of(g, g.value(ref).numel(), g.shape(0, 2), True)}


@maker("masked_select", "masked_fill", "masked_scatter")
def masked(g):
    ref = g.pick()
    shape = g.value(ref).shape
    return {"input": ref, "mask": g.literal(g.broadcastable(shape), "bool"),
            "value": g.number() if g.chance(0.7) else g.literal((), str(g.value(ref).dtype)[6:]),
            "source": g.pick(lambda v: v.dtype == g.value(ref).dtype and v.numel() >= g.value(ref).numel())}


@maker("where")
def where(g):
    ref = g.pick()
    return {"condition": g.literal(g.broadcastable(g.value(ref).shape), "bool"),
            "input": ref if g.chance(0.7) else g.number(), "other": g.other(ref) if g.chance(0.6) else g.number()}


@maker("topk")
def topk(g):
    ref = g.pick()
    value, dim, size = along(g, ref)
    arguments = {"input": ref, "k": g.integer(0, size + (1 if g.chance(0.05) else 0))}
    some(g, arguments, "dim", dim, 0.6)
    if "dim" not in arguments and value.dim():
        arguments["k"] = g.integer(0, value.shape[-1])
    return some(g, arguments, "largest", lambda: g.chance(0.5))


@maker("sort", "argsort")
def sort(g):
    ref = g.pick()
    arguments = some(g, {"input": ref}, "dim", lambda: g.dim(g.value(ref)))
    some(g, arguments, "descending", lambda: g.chance(0.6))
    arguments["stable"] = True  # else ties may fall either way
    return arguments


@maker("unique")
def unique(g):
    return some(g, some(g, {"input": g.pick()}, "return_inverse", True), "return_counts", True)


@maker("bincount")
def bincount(g):
    count = g.integer(0, 6)
    ref = g.literal((count,), g.choice(["int64", "int32", "uint8"]), 0, 5)
    arguments = some(g, {"input": ref}, "weights", lambda: g.literal((count,), g.choice(["float32", "float64"])), 0.3)
    return some(g, arguments, "minlength", lambda: g.integer(0, 8), 0.3)


@maker("searchsorted")
def searchsorted(g):
    dtype = g.choice(["float32", "float64", "int64"])
    ref = g.literal((g.integer(1, 5),), dtype, -4, 4)
    ordered = g.let_sorted(ref)
    arguments = {"sorted_sequence": ordered, "input": g.literal(g.shape(0, 2), dtype, -5, 5)}
    some(g, arguments, "right", lambda: g.chance(0.7))
    return some(g, arguments, "out_int32", True, 0.2)


@maker("one_hot")
def one_hot(g):
    return some(g, {"input": g.literal(g.shape(0, 2), "int64", 0, 4)}, "num_classes", lambda: g.integer(4, 7))


@maker("embedding")
def embedding(g):
    weight = g.pick(low=2, high=2)
    rows = g.value(weight).shape[0]
    arguments = {"input": index_of(g, rows, g.shape(0, 2)), "weight": weight}
    return some(g, arguments, "padding_idx", lambda: g.integer(-rows, rows - 1), 0.3)


# Products of matrices.

def batch(g):
    return [g.integer(1, 3) for _ in range(g.integer(0, 2))] if g.chance(0.4) else []


@maker("matmul")
def matmul(g):
    n, k, m = g.size(), g.size(), g.size()
    left, right = [n, k], [k, m]
    kind = g.integer(0, 5)
    if kind == 0:
        left = [k]
    elif kind == 1:
        right = [k]
    elif kind == 2:
        left, right = [k], [k]
    else:
        sizes = batch(g)
        left = list(sizes) + left
        right = list(g.broadcastable(sizes)) + right
    dtype = g.choice(g.dtypes)
    return {"input": laid_out(g, left, dtype), "other": laid_out(g, right, dtype)}


def laid_out(g, shape, dtype):
    """A tensor of this shape, contiguous or a transposed view."""
    if len(shape) >= 2 and g.chance(0.3):
        turned = g.literal(list(shape[:-2]) + [shape[-1], shape[-2]], dtype)
        made = g.let(Call(turned, "transpose", (-1, -2), ()), "v")
        return made[0] if made else turned
    return g.pick(shape=shape, dtype=dtype, fresh=0.5)


def product(*shapes):
    """A maker from the names of parameters and their shapes in letters."""
    def make(g):
        sizes = {letter: g.size() for letter in "bnkm"}
        dtype = g.choice(g.dtypes)
        arguments = {}
        for name, letters, exact in shapes:
            shape = [sizes[letter] for letter in letters]
            if not exact:
                shape = g.broadcastable(shape)
            arguments[name] = laid_out(g, shape, dtype)
        some(g, arguments, "beta", g.number, 0.3)
        return some(g, arguments, "alpha", g.number, 0.3)
    return make


MAKERS["mm"] = product(("input", "nk", True), ("mat2", "km", True))
MAKERS["bmm"] = product(("input", "bnk", True), ("mat2", "bkm", True))
MAKERS["mv"] = product(("input", "nk", True), ("vec", "k", True))
MAKERS["dot"] = product(("input", "k", True), ("other", "k", True))
MAKERS["outer"] = product(("input", "n", True), ("vec2", "m", True))
MAKERS["addmm"] = product(("input", "nm", False), ("mat1", "nk", True), ("mat2", "km", True))
MAKERS["baddbmm"] = product(("input", "bnm", False), ("batch1", "bnk", True), ("batch2", "bkm", True))


@maker("linear")
def linear(g):
    k, m = g.size(), g.size()
    dtype = g.choice(g.dtypes)
    arguments = {"input": laid_out(g, list(g.shape(0, 2)) + [k], dtype),
                 "weight": laid_out(g, [m, k] if not g.chance(0.05) else [k], dtype)}
    return some(g, arguments, "bias", lambda: g.pick(shape=(m,), dtype=dtype))


# Making tensors.

@maker("zeros", "ones", "rand", "randn")
def filled(g):
    return some(g, {"size": list(g.shape())}, "dtype", lambda: Dtype(g.choice(["float64", "float32", "int64"])), 0.3)


@maker("full")
def full(g):
    # Without a dtype PyTorch uses that of the number, accelhost float32.
    return {"size": list(g.shape()), "fill_value": g.number(), "dtype": Dtype(g.choice(g.dtypes))}


@maker("arange")
def arange(g):
    arguments = {"start": g.number()}
    if g.chance(0.6):
        arguments["end_"] = arguments["start"]
        arguments["start"], arguments["end_"] = g.number(), g.number()
    if "end_" in arguments and g.chance(0.4):
        arguments["step"] = g.choice([1, 2, -1, 0.5, 0.3, 0])
    return some(g, arguments, "dtype", lambda: Dtype(g.choice(g.dtypes)), 0.3)


@maker("linspace")
def linspace(g):
    return some(g, {"start": g.number(), "end_": g.number(), "steps": g.integer(0, 6)}, "dtype",
                lambda: Dtype(g.choice(g.dtypes)), 0.3)


@maker("eye")
def eye(g):
    return some(g, some(g, {"n": g.integer(0, 4)}, "m", lambda: g.integer(0, 4)), "dtype",
                lambda: Dtype(g.choice(g.dtypes)), 0.3)


@maker("tril", "triu")
def triangle(g):
    return some(g, {"input": g.pick(low=2)}, "diagonal", lambda: g.integer(-3, 3))


@maker("randint")
def randint(g):
    low = g.integer(-3, 3)
    return some(g, {"low": low, "high": low + g.choice([1, 2, 10, 1000, 2**33]), "size": list(g.shape())}, "dtype",
                lambda: Dtype(g.choice(["int64", "int32", "float32", "float64"])), 0.3)


@maker("randperm")
def randperm(g):
    return {"n": g.integer(0, 12)}


@maker("bernoulli")
def bernoulli(g):
    return {"input": g.pick(lambda v: v.is_floating_point() and v.numel() > 0 and bool(((v >= 0) & (v <= 1)).all()),
                            fresh=0.5)}


@maker("multinomial")
def multinomial(g):
    count = g.integer(1, 5)
    ref = g.literal(g.choice([(count,), (2, count)]), g.floating(), 0, 3, grad=False)
    replacement = g.chance(0.5)
    return {"input": ref, "num_samples": g.integer(1, 4 if replacement else count), "replacement": replacement}


@maker("uniform_")
def uniform(g):
    low = g.number()
    return {"input": writable(g), "from": low, "to": low + abs(g.number())} if g.chance(0.5) \
        else {"input": writable(g)}


@maker("normal_")
def normal(g):
    return some(g, some(g, {"input": writable(g)}, "mean", g.number), "std", lambda: abs(g.number()))


@maker("bernoulli_")
def bernoulli_(g):
    return some(g, {"input": writable(g)}, "p", lambda: g.choice([0, 0.3, 1, 0.75]))


@maker("random_")
def random_(g):
    ref = writable(g)
    return {"input": ref} if g.chance(0.4) else {"input": ref, "from": g.integer(0, 3), "to": g.integer(4, 100)}


@maker("exponential_")
def exponential(g):
    return some(g, {"input": writable(g)}, "lambd", lambda: g.choice([1, 0.5, 2.5]))


def writable(g):
    return g.pick(lambda v: not v.requires_grad, fresh=0.3)
