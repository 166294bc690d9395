"""Products of several tensors, for COMPOSED."""

from composing import composed
from modules import options

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
