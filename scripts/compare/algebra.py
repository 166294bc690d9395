"""Programs of linalg and special. Matrices are mostly well-conditioned; what is unique only up to signs or the order of
equal values is compared through the product that it has to give again."""

from generate import FLOATS
from modules import options
from program import Binary, Call, Dtype, Raw

ALGEBRA, SPECIAL = {}, {}


def entry(*names):
    def add(function):
        for name in names:
            ALGEBRA[name] = function
        return function
    return add


def emit_algebra(g):
    if g.chance(0.25):
        name = g.choice(SPECIAL)
        args, extra = SPECIAL[name](g)
        g.let(Call("special", name, args, extra))
    else:
        name = g.choice(ALGEBRA)
        ALGEBRA[name](g, name)
    g.backward()


def let(g, name, args, extra=(), how=""):
    return g.let(Call("linalg", name, tuple(args), extra), how=how)


def batch(g):
    return [g.integer(0 if g.chance(0.1) else 1, 3) for _ in range(g.integer(1, 2))] if g.chance(0.35) else []


def matrix(g, rows=None, columns=None, lead=None, dtype=None):
    rows = g.size() if rows is None else rows
    dtype = dtype or (g.choice(FLOATS) if not g.chance(0.05) else g.choice(g.dtypes))
    return g.operand((batch(g) if lead is None else lead) + [rows, rows if columns is None else columns], dtype)


def square(g, lead=None, dtype=None, n=None):
    """A square matrix that mostly has an inverse: it gets a large diagonal."""
    ref = matrix(g, n, None, lead, dtype)
    value = g.value(ref)
    if g.chance(0.1) or not value.is_floating_point():
        return ref
    made = g.let(Binary("+", ref, Binary("*", Call("", "eye", (value.shape[-1],), (("dtype", dtype_of(value)),)), 12)),
                 "a")
    return made[0] if made else ref


def dtype_of(value):
    return Dtype(str(value.dtype)[6:])


def positive(g):
    """A symmetric positive-definite matrix."""
    ref = matrix(g)
    value = g.value(ref)
    if g.chance(0.08):
        return ref
    eye = Call("", "eye", (value.shape[-2],), (("dtype", dtype_of(value)),))
    made = g.let(Binary("+", Call(ref, "matmul", (Call(ref, "transpose", (-1, -2), ()),), ()), eye), "a")
    return made[0] if made else ref


def symmetric(g):
    ref = matrix(g)
    made = g.let(Binary("+", ref, Call(ref, "transpose", (-1, -2), ())), "a")
    return made[0] if made else ref


entry("inv", "det", "slogdet", "inv_ex")(lambda g, name: let(g, name, [square(g)]))
entry("cholesky", "cholesky_ex")(lambda g, name: let(g, name, [positive(g)], options(g, 0.3, upper=[True])))
entry("eigvalsh")(lambda g, name: let(g, name, [symmetric(g)], options(g, 0.3, UPLO=["L", "U"])))
entry("svdvals")(lambda g, name: let(g, name, [matrix(g, None, g.size())]))
entry("matrix_rank")(lambda g, name: let(g, name, [matrix(g, None, g.size())], options(
    g, 0.3, hermitian=[False], atol=[0.1], rtol=[0.01])))
entry("pinv")(lambda g, name: let(g, name, [matrix(g, None, g.size())], options(g, 0.3, rtol=[1e-4])))
entry("matrix_exp")(lambda g, name: let(g, name, [matrix(g)]))
entry("matrix_power")(lambda g, name: let(g, name, [square(g), g.integer(-2, 4)]))
entry("cond")(lambda g, name: let(g, name, [square(g)], options(
    g, 0.6, p=[1, -1, 2, -2, "fro", "nuc", float("inf"), float("-inf")])))
entry("lu", "lu_factor", "lu_factor_ex")(lambda g, name: let(g, name, [matrix(g, None, g.size())]))
entry("vander")(lambda g, name: let(g, name, [g.operand(g.shape(1, 2), g.choice(g.dtypes))], options(
    g, 0.4, N=[0, 1, 3])))
entry("diagonal")(lambda g, name: let(g, name, [g.pick(low=2)], options(
    g, 0.4, offset=[-1, 1, 2], dim1=[0, -2], dim2=[1, -1])))
entry("qr")(lambda g, name: rebuilt(g, "qr", matrix(g, None, g.size()), "mode", ["reduced", "complete"], "q:matmul(r)",
                                    "q @ r", "q, r"))
entry("svd")(lambda g, name: rebuilt(g, "svd", matrix(g, None, g.size()), "full_matrices", [False],
                                     "(u * s:unsqueeze(-2)):matmul(v)", "(u * s.unsqueeze(-2)) @ v", "u, s, v"))
entry("eigh")(lambda g, name: rebuilt(
    g, "eigh", symmetric(g), "UPLO", ["L", "U"], "(v * w:unsqueeze(-2)):matmul(v:transpose(-1, -2))",
    "(v * w.unsqueeze(-2)) @ v.transpose(-1, -2)", "w, v"))


def rebuilt(g, name, ref, option, values, lua, py, names):
    """A decomposition, and the product of what it gives."""
    value = g.choice(values)
    call = Call("linalg", name, (ref,), ((option, value),))
    return g.let(Raw(f"(function({names}) return {lua} end)({call.lua()})", f"(lambda {names}: {py})(*{call.py()})"))


@entry("solve", "solve_ex")
def solve(g, name):
    lead, n, dtype = batch(g), g.size(), g.choice(FLOATS)
    left = square(g, lead, dtype, n)
    kind = g.integer(0, 3)
    if kind == 0:
        return let(g, name, [left, g.operand(lead + [n], dtype)])
    if kind == 1:
        return let(g, name, [left, g.operand(lead + [g.size(), n], dtype)], (("left", False),))
    return let(g, name, [left, g.operand(list(g.broadcastable(lead)) + [n, g.size()], dtype)])


@entry("solve_triangular")
def solve_triangular(g, name):
    lead, n, dtype, left = batch(g), g.size(), g.choice(FLOATS), g.chance(0.7)
    shape = [n, g.size()] if left else [g.size(), n]
    return let(g, name, [square(g, lead, dtype, n), g.operand(lead + shape, dtype)],
               (("upper", g.chance(0.5)),) + (() if left else (("left", False),)) + options(
                   g, 0.3, unitriangular=[True]))


@entry("lu_solve")
def lu_solve(g, name):
    lead, n, dtype = batch(g), g.size(), g.choice(FLOATS)
    made = let(g, "lu_factor", [square(g, lead, dtype, n)])
    if made and len(made) == 2:
        right = g.operand(lead + [n, g.size()], dtype)
        if g.chance(0.4):
            return g.let(Call("", name, (right, *made), ()))
        return let(g, name, made + [right], options(g, 0.4, adjoint=[True]))
    return None


@entry("lstsq")
def lstsq(g, name):
    lead, n, dtype = batch(g), g.integer(1, 3), g.choice(FLOATS)
    m = n + g.integer(0, 2)
    call = Call("linalg", name, (g.operand(lead + [m, n], dtype), g.operand(lead + [m, g.integer(1, 2)], dtype)), ())
    return g.let(Raw(f"(function(x) return x end)({call.lua()})", f"{call.py()}[0]"))


@entry("norm", "vector_norm")
def vector_norm(g, name):
    ref = g.operand(dtype=g.choice(FLOATS) if not g.chance(0.1) else g.choice(g.dtypes))
    chosen = dict(ord=[0, 1, 2, 3, 0.5, -1, float("inf"), float("-inf")], dim=lambda: g.dim(g.value(ref)),
                  keepdim=[True])
    return let(g, name, [ref], options(g, 0.5, **chosen))


@entry("matrix_norm")
def matrix_norm(g, name):
    return let(g, name, [matrix(g, None, g.size())], options(
        g, 0.6, ord=["fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf")], keepdim=[True]))


@entry("cross", "vecdot")
def cross(g, name):
    shape = list(g.shape(1, 3))
    dim = g.integer(0, len(shape) - 1)
    if name == "cross":
        shape[dim] = 3
    dtype = g.choice(g.dtypes)
    other = list(shape) if g.chance(0.7) else list(g.broadcastable(shape)) if name == "vecdot" else list(shape)
    return let(g, name, [g.operand(shape, dtype), g.operand(other, dtype)], (("dim", dim - len(shape)),))


@entry("multi_dot")
def multi_dot(g, name):
    sizes = [g.size() for _ in range(g.integer(3, 5))]
    dtype = g.choice(FLOATS)
    refs = [g.operand([a, b], dtype) for a, b in zip(sizes, sizes[1:])]
    return let(g, name, [refs])


@entry("tensorinv")
def tensorinv(g, name):
    return let(g, name, [g.literal((2, 3, 3, 2), g.choice(FLOATS), values=None)], (("ind", 2),))


@entry("tensorsolve")
def tensorsolve(g, name):
    dtype = g.choice(FLOATS)
    return let(g, name, [g.literal((2, 3, 3, 2), dtype), g.literal((2, 3), dtype)])


@entry("householder_product")
def householder(g, name):
    n, dtype = g.integer(1, 3), g.choice(FLOATS)
    return let(g, name, [g.operand([n + g.integer(0, 1), n], dtype), g.operand([g.integer(1, n)], dtype)])


@entry("matmul")
def matmul(g, name):
    lead, n, k, m, dtype = batch(g), g.size(), g.size(), g.size(), g.choice(g.dtypes)
    return let(g, name, [g.operand(lead + [n, k], dtype), g.operand(list(g.broadcastable(lead)) + [k, m], dtype)])


# Names of linalg that torch itself has, too.

@entry("inverse", "logdet", "pinverse")
def plain(g, name):
    ref = square(g)
    return g.let(Call(ref, name, (), ()) if g.chance(0.3) else Call("", name, (ref,), ()))


@entry("det of torch", "slogdet of torch", "matrix_exp of torch", "matrix_power of torch")
def torch_own(g, name):
    ref = square(g)
    args = (g.integer(-1, 3),) if "power" in name else ()
    name = name.split()[0]
    return g.let(Call(ref, name, args, ()) if g.chance(0.4) else Call("", name, (ref,) + args, ()))


@entry("svd of torch")
def svd(g, name):
    ref = matrix(g, None, g.size())
    return g.let(Raw(f"(function(u, s, v) return (u * s:unsqueeze(-2)):matmul(v:transpose(-1, -2)) end)"
                     f"(accelhost.svd({ref.lua()}))",
                     f"(lambda u, s, v: (u * s.unsqueeze(-2)) @ v.transpose(-1, -2))(*torch.svd({ref.py()}))"))


@entry("cholesky_solve", "cholesky_inverse")
def by_factor(g, name):
    ref = positive(g)
    factor = let(g, "cholesky", [ref])
    if not factor:
        return
    shape, dtype = list(g.value(ref).shape), str(g.value(ref).dtype)[6:]
    args = (factor[0],) if name == "cholesky_inverse" else (g.operand(shape[:-1] + [2], dtype), factor[0])
    g.let(Call("", name, args, ()))


@entry("lu_unpack")
def lu_unpack(g, name):
    made = let(g, "lu_factor", [matrix(g, None, g.size())])
    if made and len(made) == 2:
        g.let(Call("", name, tuple(made), ()))


def special(**choices):
    return lambda g: ((g.pick(),), options(g, 0.4, **choices))


SPECIAL.update({name: special() for name in ("digamma", "psi", "erf", "erfc", "erfinv", "exp2", "expit", "expm1",
                                             "gammaln", "i0", "log1p", "sinc", "ndtr", "ndtri", "entr")})
SPECIAL.update({
    "round": special(decimals=[1, 2, -1]), "logit": special(eps=[0.1, 1e-3]),
    "logsumexp": lambda g: ((g.pick(), g.integer(-2, 1)), options(g, 0.3, keepdim=[True])),
    "softmax": lambda g: ((g.pick(), g.integer(-2, 1)), ()),
    "log_softmax": lambda g: ((g.pick(), g.integer(-2, 1)), ()),
    "polygamma": lambda g: ((g.integer(0, 3), g.pick()), ()),
})


def two(g):
    ref = g.pick()
    return (ref, g.other(ref)), ()


SPECIAL.update({"xlogy": two, "xlog1py": two})
