"""Losses, of spec/cases/losses.lua, with random inputs and options, and the backward of their results.

INPUTS: function -> function(generator, dtype) -> (arguments, more values of options). A loss without an entry, of its
own or of the function that its row names as like it, is of two tensors of one shape."""

from modules import entry, options, read
from program import Call

LOSSES = {row["fn"]: row for row in read("losses")}
INPUTS = {}


def pairs(g, dtype):
    shape = g.shape()
    target = g.operand(shape if g.chance(0.9) else g.broadcastable(shape), dtype)
    return (g.operand(shape, dtype), target), {}


@entry(INPUTS, "kl_div")
def kl_div(g, dtype):
    shape = g.shape()
    return (g.literal(shape, dtype), g.literal(shape, dtype)), {}


def weights(g, shape, dtype):
    """Weights of classes or elements."""
    return lambda: g.literal(shape() if callable(shape) else shape, dtype, 0, 3, grad=False)


@entry(INPUTS, "cross_entropy")
def classes(g, dtype):
    count = g.integer(1, 5)
    trail = [g.integer(1, 3) for _ in range(g.integer(0, 2))] if g.chance(0.3) else []
    lead = [g.integer(1, 4)] if g.chance(0.9) or trail else []
    return (g.operand(lead + [count] + trail, dtype), g.operand(lead + trail, "int64", 0, count - 1)), dict(
        ignore_index=lambda: g.integer(-1, count - 1), weight=weights(g, (count,), dtype))


def probabilities(g, shape, dtype):
    count = 1
    for n in shape:
        count *= n
    values = [g.choice([0, 1, 0.5, 0.25]) if g.mood == "small" else round(g.random.random(), 3) for _ in range(count)]
    return g.literal(shape, dtype, values=values)


@entry(INPUTS, "binary_cross_entropy")
def binary(g, dtype):
    shape = g.shape()
    target = probabilities(g, shape, dtype)
    source = g.literal(shape, dtype) if g.chance(0.4) else probabilities(g, shape, dtype)
    return (source, target), dict(weight=weights(g, lambda: g.broadcastable(shape), dtype))


def signs(g, shape, dtype):
    count = 1
    for n in shape:
        count *= n
    return g.literal(shape, dtype, values=[g.choice([1, -1]) for _ in range(count)], grad=False)


@entry(INPUTS, "hinge_embedding_loss")
def by_sign(g, dtype):
    shape = g.shape()
    return (g.operand(shape, dtype), signs(g, shape, dtype)), {}


@entry(INPUTS, "margin_ranking_loss")
def ranking(g, dtype):
    shape = g.shape(0, 2)
    return (g.operand(shape, dtype), g.operand(shape, dtype), signs(g, shape, dtype)), {}


@entry(INPUTS, "cosine_embedding_loss")
def cosine(g, dtype):
    count, width = g.integer(1, 3), g.integer(1, 4)
    lead = [count] if g.chance(0.8) else []
    return (g.operand(lead + [width], dtype), g.operand(lead + [width], dtype), signs(g, lead, dtype)), {}


@entry(INPUTS, "multi_margin_loss")
def multi_margin(g, dtype):
    count, lead = g.integer(1, 4), [g.integer(1, 3)] if g.chance(0.8) else []
    return (g.operand(lead + [count], dtype), g.operand(lead, "int64", 0, count - 1)), dict(
        weight=weights(g, (count,), dtype))


@entry(INPUTS, "multilabel_margin_loss")
def multilabel_margin(g, dtype):
    count, lead = g.integer(1, 4), [g.integer(1, 3)] if g.chance(0.8) else []
    return (g.operand(lead + [count], dtype), g.operand(lead + [count], "int64", -1, count - 1)), {}


@entry(INPUTS, "multilabel_soft_margin_loss")
def multilabel_soft(g, dtype):
    shape = [g.integer(1, 3) for _ in range(g.integer(1, 3))]
    return (g.operand(shape, dtype), probabilities(g, shape, dtype)), dict(weight=weights(g, shape[-1:], dtype))


@entry(INPUTS, "triplet_margin_loss")
def triplet(g, dtype):
    shape = [g.integer(1, 3) for _ in range(g.integer(1, 3))]
    return tuple(g.operand(shape, dtype) for _ in range(3)), {}


@entry(INPUTS, "poisson_nll_loss")
def poisson(g, dtype):
    shape = g.shape()
    return (g.operand(shape, dtype), g.literal(shape, dtype, 0, 5, grad=False)), {}


@entry(INPUTS, "gaussian_nll_loss")
def gaussian(g, dtype):
    shape = list(g.shape(1, 3))
    spread = g.choice([shape, shape[:-1] + [1], shape[:-1]])
    return (g.operand(shape, dtype), g.operand(shape, dtype), g.literal(spread, dtype, 0, 3)), {}


@entry(INPUTS, "ctc_loss")
def ctc(g, dtype):
    steps, batch, count, width = g.integer(2, 5), g.integer(1, 3), g.integer(2, 4), g.integer(1, 3)
    single = g.chance(0.15)
    lead = [] if single else [batch]
    source = g.operand([steps] + lead + [count], dtype)
    targets = g.literal(lead + [width], "int64", 1, count - 1)
    lengths = (g.literal(lead, "int64", 1, steps), g.literal(lead, "int64", 0, width))
    return (source, targets) + lengths, {}


def emit_loss(g):
    name = g.choice(LOSSES)
    row = LOSSES[name]
    args, more = INPUTS.get(row["like"], pairs)(g, g.floating())
    extra = options(g, 0.4, **dict(row["drawn"]), **more)
    if name == "cross_entropy" and g.chance(0.2):  # probabilities in the place of labels
        value = g.value(args[0])
        args = (args[0], probabilities(g, value.shape, str(value.dtype)[6:]))
    if name == "ctc_loss":
        made = g.let(Call(args[0], "log_softmax", (-1,), ()))
        args = (made[0],) + args[1:] if made else args
    if name.endswith("logits") and g.chance(0.3) and g.value(args[0]).dim():
        extra += (("pos_weight", g.literal(g.value(args[0]).shape[-1:], str(g.value(args[0]).dtype)[6:], 1, 3,
                                           grad=False)),)
    if g.chance(0.4):
        made = g.let(Call("nn", row["name"], (), extra), "m")
        if made:
            g.let(Call(None, made[0].fields[0], args, ()), "y")
    else:
        g.let(Call("F", name, args, extra), "y")
    g.backward(first_only=name == "ctc_loss")  # PyTorch's second derivative of it breaks its heap
