"""Calls of functions and methods that accelhost makes of several ops: their arguments, chosen to fit each other.

COMPOSED: name -> (forms, maker, how). Forms: "f" a function, "m" a method. A maker: function(generator) -> (arguments,
options); how: "table" where accelhost gives a table and PyTorch a tuple."""

from generate import FLOATS, Give
from makers import along, gather_shape, index_of, writable
from modules import options
from ops import MANY_PARTS
from program import Call, Do, Dtype, NoGrad, Ref

COMPOSED = {}


def composed(names, forms="f", how=""):
    def add(function):
        for name in names.split():
            COMPOSED[name] = (forms, function, how)
        return function
    return add


def emit_composed(g):
    name = g.choice(COMPOSED)
    forms, make, how = COMPOSED[name]
    args, extra = make(g)
    if g.choice(forms) == "m" and isinstance(args[0], Ref):
        call = Call(args[0], name, tuple(args[1:]), extra)
    elif "f" in forms:
        call = Call("", name, tuple(args), extra)
    else:
        raise Give
    quiet = g.chance(0.2 if name.endswith("_") else 0.05)
    if name.endswith("_") and g.chance(0.5):
        return g.emit(NoGrad(Do(call)) if quiet else Do(call))
    return g.let(call, how=how, quiet=quiet)


def count_of(value, dim):
    """The size of a dim that may be out of range."""
    return value.shape[dim] if -value.dim() <= dim < value.dim() else 1


# One tensor and its options.

def of_one(low=0, high=4, **choices):
    def make(g):
        return (g.pick(low=low, high=high),), options(g, 0.4, **{k: v(g) if callable(v) else v
                                                                 for k, v in choices.items()})
    return make


def some_dim(low=-2, high=1):
    return lambda g: lambda: g.integer(low, high)


composed("fliplr flipud ravel isreal is_complex is_signed positive conj resolve_conj resolve_neg argwhere", "fm")(
    of_one())
composed("real")(of_one())
composed("is_floating_point numel", "fm")(of_one())
composed("is_nonzero", "fm")(lambda g: ((g.pick(lambda v: v.numel() <= 2),), ()))
composed("msort trace corrcoef", "fm")(of_one())
composed("diag", "fm")(of_one(0, 3, diagonal=some_dim(-3, 3)))
composed("diagflat", "fm")(of_one(0, 2, offset=some_dim()))
composed("diag_embed", "fm")(of_one(0, 3, offset=some_dim(), dim1=[-2, 0, 1], dim2=[-1, 1, 2]))
composed("rot90", "fm")(of_one(2, 4, k=some_dim(-3, 5), dims=[[0, 1], [1, 0], [-1, 0], [1, 2], [0, 0]]))
composed("vander")(of_one(1, 1, N=some_dim(0, 4), increasing=[True]))
composed("combinations")(of_one(1, 1, r=some_dim(0, 3), with_replacement=[True]))
composed("squeeze_", "m")(of_one(0, 4, dim=[0, 1, -1, [0, 1]]))
composed("t_", "m")(of_one(0, 3))
composed("nansum", "fm")(of_one(0, 4, dim=[0, -1, [0, 1]], keepdim=[True],
                                dtype=[Dtype("float64"), Dtype("int64")]))
composed("nanmean", "fm")(of_one(0, 4, dim=[0, -1, [0, 1]], keepdim=[True]))
composed("aminmax", "fm")(lambda g: ((g.pick(),), options(g, 0.5, dim=[0, -1, 1], keepdim=[True])))


@composed("unsqueeze_", "m")
def unsqueeze(g):
    ref = g.pick()
    return (ref, g.integer(-g.value(ref).dim() - 1, g.value(ref).dim())), ()


@composed("transpose_ swapdims_ swapaxes_", "m")
def transpose(g):
    ref = g.pick()
    return (ref, g.dim(g.value(ref)), g.dim(g.value(ref))), ()


@composed("unfold", "m")
def unfold(g):
    ref = g.pick()
    dim = g.dim(g.value(ref))
    return (ref, dim, g.integer(0, count_of(g.value(ref), dim) + 1), g.integer(1, 3)), ()


@composed("as_strided", "fm")
def as_strided(g):
    ref = g.pick(low=1)
    sizes = [g.integer(1, 3) for _ in range(g.integer(0, 3))]
    return (ref, sizes, [g.integer(0, 2) for _ in sizes]), options(g, 0.4, storage_offset=[0, 1])


@composed("tril_indices triu_indices")
def triangle(g):
    return (g.integer(0, 4), g.integer(0, 4)), options(g, 0.4, offset=lambda: g.integer(-3, 3),
                                                       dtype=[Dtype("int32"), Dtype("int64")])


# Several tensors.

@composed("atleast_1d atleast_2d atleast_3d")
def atleast(g):
    return [g.pick() for _ in range(g.integer(1, 3))], ()


@composed("hstack vstack row_stack dstack column_stack")
def stacks(g):
    first = g.pick()
    shape = g.value(first).shape
    return ([first] + [g.pick(shape=shape, fresh=0.3) for _ in range(g.integer(0, 2))],), ()


@composed("block_diag")
def block_diag(g):
    return [g.pick(high=2 if not g.chance(0.05) else 3) for _ in range(g.integer(1, 3))], ()


@composed("broadcast_tensors")
def broadcast_tensors(g):
    first = g.pick()
    return [first] + [g.other(first) for _ in range(g.integer(1, 2))], ()


@composed("meshgrid")
def meshgrid(g):
    return [g.pick(high=1) for _ in range(g.integer(2, 3))], (("indexing", g.choice(["ij", "xy"])),)


@composed("cartesian_prod")
def cartesian(g):
    dtype = g.choice(g.dtypes)
    return [g.pick(low=1, high=1, dtype=dtype) for _ in range(g.integer(1, 3))], ()


def places(g, ref, dim):
    size = count_of(g.value(ref), dim)
    if size > MANY_PARTS:
        raise Give
    return g.integer(1, size + 1) if g.chance(0.5) else sorted(
        g.integer(-size, size + 1) for _ in range(g.integer(0, 3)))


@composed("tensor_split", "fm", "table")
def tensor_split(g):
    ref = g.pick(low=1)
    dim = g.dim(g.value(ref))
    return (ref, places(g, ref, dim), dim), ()


@composed("hsplit vsplit dsplit", "fm", "table")
def splits(g):
    ref = g.pick(low=1)
    return (ref, places(g, ref, g.choice([0, 1]) if g.value(ref).dim() > 1 else 0)), ()


@composed("split_with_sizes", "m", "table")
def split_with_sizes(g):
    ref = g.pick(low=1)
    dim = g.dim(g.value(ref))
    size = count_of(g.value(ref), dim)
    first = g.integer(0, size)
    return (ref, [first, size - first], dim), ()


@composed("is_same_size", "fm")
def is_same_size(g):
    ref = g.pick()
    return (ref, g.pick()), ()


@composed("equal allclose isclose", "fm")
def compared(g):
    ref = g.pick()
    other = g.pick(dtype=str(g.value(ref).dtype)[6:]) if g.chance(0.5) else g.other(ref)
    return (ref, other), ()


# Products.

EINSUMS = ["i,i->", "i,j->ij", "ij,jk->ik", "ij,jk", "bij,bjk->bik", "ij->ji", "ii->i", "ii", "ij->", "ij->j",
           "...ij,...jk->...ik", "...i->...", "ij,ij->i", "i,ij,j->", "bi,oij,bj->bo", "ij,kj->ikj", "ij,j",
           "bhqd,bhkd->bhqk", "i j, j k -> k i", "ijk->kij", "iij->ij", "ij,jk,kl->il"]


@composed("einsum")
def einsum(g):
    equation = g.choice(EINSUMS)
    sizes = {letter: g.integer(1, 3) if not g.chance(0.03) else 0 for letter in "abcdefghijklmnopqrstuvwxyz"}
    dtype = g.choice([d for d in g.dtypes if d != "bool"] or ["float32"])
    lead = [g.integer(1, 2)] if "..." in equation and g.chance(0.6) else []
    operands = []
    for term in equation.split("->")[0].replace(" ", "").split(","):
        shape = (list(lead) if term.startswith("...") else []) + [sizes[letter] for letter in term.replace("...", "")]
        operands.append(g.operand(shape, dtype))
    return (equation, *operands), ()


def shaped(*terms, high=3):
    """A maker from shapes in letters; a trailing + lets a shape broadcast."""
    def make(g):
        sizes = {letter: g.size() for letter in "bnkmp"}
        dtype = g.choice(g.dtypes)
        refs = []
        for term in terms:
            shape = [sizes[letter] for letter in term.rstrip("+")]
            if g.chance(0.04) and shape:
                shape[0] += 1
            refs.append(g.operand(g.broadcastable(shape) if term.endswith("+") else shape, dtype))
        return refs
    return make


def product(*terms, scaled=False):
    make = shaped(*terms)
    return lambda g: (make(g), options(g, 0.3, beta=g.number, alpha=g.number) if scaled else ())


composed("vdot", "fm")(product("n", "n"))
composed("kron", "fm")(lambda g: ((g.pick(high=3), g.pick(high=2)), ()))
composed("inner", "fm")(lambda g: (g.choice([product("n", "n"), product("mn", "kn"), product("bmn", "n"),
                                             product("", "n"), product("bmn", "kn")])(g)[0], ()))
composed("addmv", "fm")(product("n+", "nk", "k", scaled=True))
composed("addr", "fm")(product("nm+", "n", "m", scaled=True))
composed("addbmm", "fm")(product("nm+", "bnk", "bkm", scaled=True))
composed("addmv_", "m")(product("n", "nk", "k", scaled=True))
composed("addr_", "m")(product("nm", "n", "m", scaled=True))
composed("addbmm_", "m")(product("nm", "bnk", "bkm", scaled=True))
composed("addmm_", "m")(product("nm", "nk", "km", scaled=True))
composed("baddbmm_", "m")(product("bnm", "bnk", "bkm", scaled=True))


@composed("cross", "fm")
def cross(g):
    shape = list(g.shape(1, 3))
    dim = g.integer(0, len(shape) - 1)
    shape[dim] = 3
    dtype = g.choice(g.dtypes)
    return (g.operand(shape, dtype), g.operand(shape, dtype)), options(g, 0.5, dim=[dim, dim - len(shape)])


@composed("dist", "fm")
def dist(g):
    ref = g.literal(dtype=g.floating())
    return (ref, g.other(ref)), options(g, 0.5, p=[0, 1, 2, 3, 0.5, float("inf"), float("-inf")])


@composed("cdist")
def cdist(g):
    dtype, width = g.floating(), g.integer(1, 3)
    lead = [g.integer(1, 2) for _ in range(g.integer(0, 1))]
    return ((g.operand(lead + [g.integer(0, 4), width], dtype), g.operand(lead + [g.integer(1, 4), width], dtype)),
            options(g, 0.5, p=[0, 1, 2, 3, 0.5, float("inf")],
                    compute_mode=["donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist"]))


@composed("tensordot")
def tensordot(g):
    dtype = g.choice(g.dtypes)
    left = list(g.shape(0, 3))
    count = g.integer(0, len(left))
    shared = left[len(left) - count:]
    right = shared + [g.integer(1, 3) for _ in range(g.integer(0, 2))]
    dims = count
    if g.chance(0.4):
        dims = [[len(left) - count + i for i in range(count)], list(range(count))]
    return (g.operand(left, dtype), g.operand(right, dtype)), options(g, 1, dims=[dims])


# Making tensors.

composed("logspace")(lambda g: ((g.number(), g.number(), g.integer(0, 5)), options(
    g, 0.3, base=[2, 10, 0.5], dtype=[Dtype("float64"), Dtype("float32")])))
composed("scalar_tensor")(lambda g: ((g.number(),), options(g, 1, dtype=[Dtype("float64"), Dtype("int32")])))
composed("bartlett_window blackman_window hann_window")(
    lambda g: ((g.integer(0, 7),), options(g, 0.4, periodic=[False], dtype=[Dtype("float64"), Dtype("float32")])))
composed("hamming_window")(lambda g: ((g.integer(0, 7),), (("periodic", g.chance(0.5)),) + options(
    g, 0.3, dtype=[Dtype("float64")])))
composed("kaiser_window")(lambda g: ((g.integer(0, 7),), (("periodic", g.chance(0.5)),) + options(
    g, 0.3, dtype=[Dtype("float64")])))
composed("randint_like")(lambda g: ((g.pick(), g.integer(-2, 1), g.integer(2, 9)), options(
    g, 0.3, dtype=[Dtype("float64"), Dtype("int32")])))


@composed("normal")
def normal(g):
    ref = g.literal(dtype=g.floating(), grad=False)
    if g.chance(0.4):
        return (ref,), options(g, 1, std=[0.5, 2])
    dtype = str(g.value(ref).dtype)[6:]
    shape = g.value(ref).shape
    count = g.value(ref).numel()
    spread = g.literal(shape, dtype, values=[g.choice([0.5, 1, 2]) for _ in range(count)], grad=False)
    return (ref, spread), ()


# Order.

@composed("unique_consecutive", "fm")
def unique_consecutive(g):
    return (g.pick(),), options(g, 0.4, return_inverse=[True], return_counts=[True]) + options(g, 0.3, dim=[0, -1])


@composed("unique", "fm")
def unique(g):
    return (g.pick(),), options(g, 0.4, return_inverse=[True], return_counts=[True]) + options(g, 0.5, dim=[0, -1, 1])


@composed("diff", "fm")
def diff(g):
    ref = g.pick()
    value, dim, _ = along(g, ref)
    chosen = dict(n=[0, 1, 2], dim=[dim])
    if value.dim() and g.chance(0.5):
        dtype = str(value.dtype)[6:]
        shape = list(value.shape)
        shape[dim] = g.integer(1, 2)
        chosen = dict(n=[1, 2], prepend=lambda: g.pick(shape=shape, dtype=dtype),
                      append=lambda: g.pick(shape=shape, dtype=dtype))
        return (ref,), (("dim", dim),) + options(g, 0.5, **chosen)
    return (ref,), options(g, 0.5, **chosen)


@composed("histc", "fm")
def histc(g):
    return (g.pick(),), options(g, 0.5, bins=[1, 4, 7], min=[-2, 0], max=[2, 5])


@composed("bucketize")
def bucketize(g):
    dtype = g.choice(["float32", "float64", "int64"])
    ordered = g.let_sorted(g.literal((g.integer(0, 5),), dtype, -4, 4))
    source = g.number() if g.chance(0.2) else g.literal(g.shape(0, 2), dtype, -5, 5)
    return (source, ordered), options(g, 0.4, right=[True], out_int32=[True])


@composed("searchsorted")
def searchsorted(g):
    dtype = g.choice(["float32", "float64", "int64", "int32"])
    lead = [g.integer(1, 2) for _ in range(g.integer(0, 2))]
    ordered = g.let_sorted(g.literal(lead + [g.integer(0, 5)], dtype, -4, 4))
    source = g.literal(lead + [g.integer(0, 3)], dtype, -5, 5)
    extra = options(g, 0.5, side=["left", "right"]) if g.chance(0.5) else options(g, 0.5, right=[True])
    return (ordered, source), extra + options(g, 0.2, out_int32=[True])


@composed("isin")
def isin(g):
    ref = g.pick()
    dtype = str(g.value(ref).dtype)[6:]
    return (ref, g.number() if g.chance(0.2) else g.pick(dtype=dtype)), options(
        g, 0.3, invert=[True], assume_unique=[False])


@composed("trapezoid trapz cumulative_trapezoid")
def trapezoid(g):
    ref = g.pick(low=1)
    value, dim, size = along(g, ref)
    if g.chance(0.4):
        points = g.literal((size,) if g.chance(0.6) else value.shape, str(value.dtype)[6:])
        return (ref, points), options(g, 0.7, dim=[dim])
    return (ref,), options(g, 0.5, dx=[0.5, 2]) + options(g, 0.5, dim=[dim])


# Statistics.

@composed("median nanmedian mode", "fm")
def median(g):
    return (g.pick(),), options(g, 0.6, dim=[0, -1, 1]) + options(g, 0.3, keepdim=[True])


@composed("kthvalue", "fm")
def kthvalue(g):
    ref = g.pick()
    _, dim, size = along(g, ref)
    return (ref, g.integer(1, size + (1 if g.chance(0.1) else 0))), (("dim", dim),) + options(g, 0.4, keepdim=[True])


@composed("quantile nanquantile", "fm")
def quantile(g):
    ref = g.pick()
    dtype = str(g.value(ref).dtype)[6:]
    q = g.choice([0, 0.5, 1, 0.3]) if g.chance(0.6) else g.literal(
        (g.integer(0, 3),), dtype if dtype in FLOATS else "float32", values=None, grad=False)
    if isinstance(q, Ref):
        shape = tuple(g.value(q).shape)
        q = g.literal(shape, dtype if dtype in FLOATS else "float32", grad=False,
                      values=[g.choice([0, 0.25, 0.6, 1]) for _ in range(shape[0])])
    return (ref, q), options(g, 0.5, dim=[0, -1, 1], keepdim=[True],
                             interpolation=["linear", "lower", "higher", "midpoint", "nearest"])


@composed("cov", "fm")
def cov(g):
    ref = g.pick(high=3)
    value = g.value(ref)
    count = value.shape[-1] if value.dim() else 1
    return (ref,), options(g, 0.3, correction=[0, 1, 2], fweights=lambda: g.literal((count,), "int64", 1, 3),
                           aweights=lambda: g.literal((count,), "float64", 1, 4, grad=False))


@composed("renorm renorm_", "m")
def renorm(g):
    ref = g.pick(low=1)
    return (ref, g.choice([1, 2, 3, 0.5]), g.dim(g.value(ref)), g.choice([0, 0.5, 1, 5])), ()


composed("mvlgamma", "fm")(lambda g: ((g.literal(g.shape(), g.floating(), 2, 6),), (("p", g.integer(1, 3)),)))
composed("polygamma")(lambda g: ((g.integer(0, 3), g.literal(g.shape(), g.floating(), 1, 5)), ()))


# Placing.

REDUCES = ["sum", "prod", "mean", "amax", "amin"]


@composed("scatter_reduce", "fm")
def scatter_reduce(g):
    ref = g.pick()
    value, dim, size = along(g, ref)
    shape = gather_shape(g, value, dim)
    source = g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5)
    return (ref, dim, index_of(g, size, shape), source), (("reduce", g.choice(REDUCES)),) + options(
        g, 0.3, include_self=[False])


COMPOSED["scatter_reduce_"] = ("m", scatter_reduce, "")


@composed("index_reduce", "fm")
def index_reduce(g):
    ref = g.pick(low=1)
    value, dim, size = along(g, ref)
    count = g.integer(1, 4)
    shape = list(value.shape)
    shape[dim] = count
    source = g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5)
    return (ref, dim, index_of(g, size, (count,)), source), (("reduce", g.choice(REDUCES[1:])),) + options(
        g, 0.3, include_self=[False])


COMPOSED["index_reduce_"] = ("m", index_reduce, "")


@composed("select_scatter", "fm")
def select_scatter(g):
    ref = g.pick(low=1)
    value, dim, size = along(g, ref)
    shape = [n for i, n in enumerate(value.shape) if i != dim % value.dim()]
    return (ref, g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5), dim, g.integer(-size, size)), ()


@composed("slice_scatter", "fm")
def slice_scatter(g):
    ref = g.pick(low=1)
    value, dim, size = along(g, ref)
    start, step = g.integer(0, size), g.integer(1, 2)
    end = g.integer(start, size)
    shape = list(value.shape)
    shape[dim] = len(range(start, end, step))
    return ((ref, g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5)),
            (("dim", dim), ("start", start), ("end_", end), ("step", step)))


@composed("diagonal_scatter", "fm")
def diagonal_scatter(g):
    ref = g.pick(low=2)
    value = g.value(ref)
    offset = g.integer(-1, 1)
    try:
        shape = value.diagonal(offset).shape
    except RuntimeError as error:
        raise Give from error
    return (ref, g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5)), (("offset", offset),)


composed("fill_diagonal_", "m")(lambda g: ((writable(g), g.number()), options(g, 0.4, wrap=[True])))


@composed("index_put", "fm")
def index_put(g):
    ref = g.pick(low=1)
    value = g.value(ref)
    count = g.integer(1, 3)
    indices = [index_of(g, n, (count,)) for n in value.shape[:g.integer(1, value.dim())]]
    shape = [count] + list(value.shape[len(indices):])
    source = g.pick(shape=g.broadcastable(shape), dtype=str(value.dtype)[6:], fresh=0.5)
    return (ref, indices, source), options(g, 0.4, accumulate=[True])


COMPOSED["index_put_"] = ("m", index_put, "")


@composed("put", "fm")
def put(g):
    ref = g.pick()
    value = g.value(ref)
    shape = (g.integer(0, 3),)
    return ((ref, index_of(g, value.numel(), shape), g.pick(shape=shape, dtype=str(value.dtype)[6:], fresh=0.5)),
            options(g, 0.4, accumulate=[True]))


COMPOSED["put_"] = ("m", put, "")
composed("unravel_index", "f", "table")(lambda g: ((g.literal(g.shape(0, 2), "int64", 0, 5), [2, g.integer(3, 4)]), ()))
composed("nonzero", "fm", "table")(lambda g: ((g.pick(low=1),), (("as_tuple", True),)))
composed("float_power_", "m")(lambda g: ((g.literal(g.shape(), "float64"), g.number()), ()))
composed("chain_matmul")(lambda g: (shaped("nk", "km", "mp")(g), ()))


@composed("sum_to_size", "m")
def sum_to_size(g):
    ref = g.pick()
    return (ref, list(g.broadcastable(g.value(ref).shape))), ()


