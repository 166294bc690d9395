"""Calls of functions and methods that accelhost makes of several ops: a random one of them all, and those that shape,
join and make tensors."""

import composed_places  # noqa: F401, which add theirs to the list
import composed_products  # noqa: F401
from composing import COMPOSED, composed, count_of
from generate import Give
from modules import options
from ops import MANY_PARTS
from program import Call, Do, Dtype, NoGrad, Ref


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
