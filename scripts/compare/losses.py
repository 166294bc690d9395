"""More losses. A row: function(generator, dtype) -> (arguments, options), as in modules.py."""

from modules import LOSS_CLASSES, LOSSES, REDUCTION, entry, options, probabilities


def signs(g, shape, dtype):
    count = 1
    for n in shape:
        count *= n
    return g.literal(shape, dtype, values=[g.choice([1, -1]) for _ in range(count)], grad=False)


@entry(LOSSES, "hinge_embedding_loss", "soft_margin_loss")
def by_sign(g, dtype):
    shape = g.shape()
    return (g.operand(shape, dtype), signs(g, shape, dtype)), options(g, 0.4, reduction=REDUCTION)


@entry(LOSSES, "margin_ranking_loss")
def ranking(g, dtype):
    shape = g.shape(0, 2)
    return (g.operand(shape, dtype), g.operand(shape, dtype), signs(g, shape, dtype)), options(
        g, 0.4, reduction=REDUCTION, margin=[0.5, 1])


@entry(LOSSES, "cosine_embedding_loss")
def cosine(g, dtype):
    count, width = g.integer(1, 3), g.integer(1, 4)
    lead = [count] if g.chance(0.8) else []
    return (g.operand(lead + [width], dtype), g.operand(lead + [width], dtype), signs(g, lead, dtype)), options(
        g, 0.4, reduction=REDUCTION, margin=[0.3])


@entry(LOSSES, "multi_margin_loss")
def multi_margin(g, dtype):
    count, lead = g.integer(1, 4), [g.integer(1, 3)] if g.chance(0.8) else []
    return (g.operand(lead + [count], dtype), g.operand(lead, "int64", 0, count - 1)), options(
        g, 0.4, reduction=REDUCTION, p=[1, 2], margin=[0.5],
        weight=lambda: g.literal((count,), dtype, 0, 3, grad=False))


@entry(LOSSES, "multilabel_margin_loss")
def multilabel_margin(g, dtype):
    count, lead = g.integer(1, 4), [g.integer(1, 3)] if g.chance(0.8) else []
    return (g.operand(lead + [count], dtype), g.operand(lead + [count], "int64", -1, count - 1)), options(
        g, 0.4, reduction=REDUCTION)


@entry(LOSSES, "multilabel_soft_margin_loss")
def multilabel_soft(g, dtype):
    shape = [g.integer(1, 3) for _ in range(g.integer(1, 3))]
    return (g.operand(shape, dtype), probabilities(g, shape, dtype)), options(
        g, 0.4, reduction=REDUCTION, weight=lambda: g.literal(shape[-1:], dtype, 0, 3, grad=False))


@entry(LOSSES, "triplet_margin_loss")
def triplet(g, dtype):
    shape = [g.integer(1, 3) for _ in range(g.integer(1, 3))]
    return tuple(g.operand(shape, dtype) for _ in range(3)), options(
        g, 0.4, reduction=REDUCTION, margin=[0.5, 3], p=[1, 2, 3], eps=[1e-3], swap=[True])


@entry(LOSSES, "poisson_nll_loss")
def poisson(g, dtype):
    shape = g.shape()
    return (g.operand(shape, dtype), g.literal(shape, dtype, 0, 5, grad=False)), options(
        g, 0.4, reduction=REDUCTION, log_input=[False], full=[True], eps=[0.1])


@entry(LOSSES, "gaussian_nll_loss")
def gaussian(g, dtype):
    shape = list(g.shape(1, 3))
    spread = g.choice([shape, shape[:-1] + [1], shape[:-1]])
    return (g.operand(shape, dtype), g.operand(shape, dtype), g.literal(spread, dtype, 0, 3)), options(
        g, 0.4, reduction=REDUCTION, full=[True], eps=[1e-3, 0.5])


@entry(LOSSES, "ctc_loss")
def ctc(g, dtype):
    steps, batch, classes, width = g.integer(2, 5), g.integer(1, 3), g.integer(2, 4), g.integer(1, 3)
    single = g.chance(0.15)
    lead = [] if single else [batch]
    source = g.operand([steps] + lead + [classes], dtype)
    targets = g.literal(lead + [width], "int64", 1, classes - 1)
    lengths = (g.literal(lead, "int64", 1, steps), g.literal(lead, "int64", 0, width))
    return (source, targets) + lengths, options(g, 0.4, reduction=REDUCTION, zero_infinity=[True])


LOSS_CLASSES.update({
    "hinge_embedding_loss": "HingeEmbeddingLoss", "soft_margin_loss": "SoftMarginLoss",
    "margin_ranking_loss": "MarginRankingLoss", "cosine_embedding_loss": "CosineEmbeddingLoss",
    "multi_margin_loss": "MultiMarginLoss", "multilabel_margin_loss": "MultiLabelMarginLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss", "triplet_margin_loss": "TripletMarginLoss",
    "poisson_nll_loss": "PoissonNLLLoss", "gaussian_nll_loss": "GaussianNLLLoss", "ctc_loss": "CTCLoss",
})
