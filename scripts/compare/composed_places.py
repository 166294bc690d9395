"""What sorts, counts and places elements, for COMPOSED."""

from composed_products import shaped
from composing import COMPOSED, composed
from generate import FLOATS, Give
from makers import along, gather_shape, index_of, writable
from modules import options
from program import Ref


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
