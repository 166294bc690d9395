"""More modules: every layer beside those of modules.py. A row: function(generator, dtype) -> (arguments, options,
inputs); an input is a shape, or ("int64", shape, classes). A layer without a row is drawn as spec/cases/layers.lua
describes it."""

from losses import LOSSES
from modules import CLASSES, LAYERS, adaptive, conv, encoder_layer, entry, options, pair, pool, small
from program import Call


def image(g, dims, channels=None, batch=True, low=1, high=5):
    """[N, C, sizes...], now and then without N."""
    shape = [g.integer(1, 2), channels or g.integer(1, 3)] + [g.integer(low, high) for _ in range(dims)]
    return shape if not batch or g.chance(0.85) else shape[1:]


CLASSES.update({
    "GLU": lambda g, dtype: ((), (("dim", g.integer(-2, 1)),), [[2 * small(g), 2 * small(g)]]),
    "Softmax2d": lambda g, dtype: ((), (), [image(g, 2)]),
    "CosineSimilarity": lambda g, dtype: ((), options(g, dim=[0, 1, -1], eps=[1e-3]), [[2, 3, 4], [2, 3, 4]]),
    "PairwiseDistance": lambda g, dtype: ((), options(g, p=[1, 2, 3], eps=[1e-3], keepdim=[True]), [[3, 4], [3, 4]]),
    "ChannelShuffle": lambda g, dtype: ((2,), (), [image(g, 2, 4)]),
    "PixelShuffle": lambda g, dtype: ((2,), (), [image(g, 2, g.choice([4, 8]))]),
    "PixelUnshuffle": lambda g, dtype: ((2,), (), [[g.integer(1, 2), 2, 2 * small(g), 2 * small(g)]]),
})


@entry(CLASSES, "PReLU")
def prelu(g, dtype):
    channels = small(g)
    return (), options(g, num_parameters=[channels], init=[0.1, 0.5]), [
        [g.integer(1, 3), channels] + list(g.shape(0, 2))]


CLASSES.update({"Conv3d": conv(3, False), "ConvTranspose3d": conv(3, True), "MaxPool3d": pool(3, False),
                "AvgPool3d": pool(3, True), "AdaptiveAvgPool3d": adaptive(3)})


def adaptive_max(dims):
    def make(g, dtype):
        return (g.integer(1, 4),), options(g, 0.4, return_indices=[True]), [image(g, dims, high=7 if dims < 3 else 4)]
    return make


def power_pool(dims):
    def make(g, dtype):
        return ((g.choice([1, 2, 3]), g.integer(1, 3)), options(g, 0.4, stride=[1, 2], ceil_mode=[True]),
                [image(g, dims, low=2)])
    return make


def fractional(dims):
    def make(g, dtype):
        size = dict(output_size=[2, 3]) if g.chance(0.6) else dict(output_ratio=[0.5, 0.7])
        return (2,), options(g, 1, **size) + options(g, 0.4, return_indices=[True]), [image(g, dims, low=4, high=6)]
    return make


def pads(dims):
    """Sides for a padding of so many dims: one number or all of them."""
    def sides(g, low=-1):
        return g.integer(0, 2) if g.chance(0.4) else [g.integer(low, 2) for _ in range(2 * dims)]
    return sides


def padding(dims, low, *more):
    def make(g, dtype):
        extra = tuple(choice(g) for choice in more)
        return (pads(dims)(g, low),) + extra, (), [image(g, dims, low=2, high=4)]
    return make


def instance_norm(dims):
    def make(g, dtype):
        channels = small(g)
        return ((channels,), options(g, 0.4, eps=[1e-3], momentum=[0.5, 0.01], affine=[True],
                                     track_running_stats=[True]), [image(g, dims, channels)])
    return make


for _dims in (1, 2, 3):
    CLASSES[f"AdaptiveMaxPool{_dims}d"] = adaptive_max(_dims)
    CLASSES[f"LPPool{_dims}d"] = power_pool(_dims)
    CLASSES[f"ConstantPad{_dims}d"] = padding(_dims, -1, lambda g: g.choice([0.5, 2, -1]))
    for _kind, _low in (("Zero", -1), ("Reflection", 0), ("Replication", 0), ("Circular", 0)):
        CLASSES[f"{_kind}Pad{_dims}d"] = padding(_dims, _low)
    CLASSES[f"InstanceNorm{_dims}d"] = instance_norm(_dims)
    if _dims > 1:
        CLASSES[f"FractionalMaxPool{_dims}d"] = fractional(_dims)


@entry(CLASSES, "BatchNorm3d")
def batch_norm(g, dtype):
    channels = small(g)
    return (channels,), options(g, 0.3, eps=[1e-3], momentum=[0.5, 0], affine=[False], track_running_stats=[False]), [
        image(g, 3, channels, False, high=3)]


@entry(CLASSES, "RMSNorm")
def rms_norm(g, dtype):
    normalized = [small(g) for _ in range(g.integer(1, 2))]
    size = normalized[0] if len(normalized) == 1 and g.chance(0.5) else normalized
    return (size,), options(g, 0.4, eps=[1e-3, 0.1], elementwise_affine=[False]), [list(g.shape(0, 2)) + normalized]


@entry(CLASSES, "LocalResponseNorm")
def local_response(g, dtype):
    return (g.integer(1, 4),), options(g, 0.4, alpha=[0.5], beta=[0.6, 2], k=[1.5]), [
        image(g, g.integer(1, 3), None, False)]


@entry(CLASSES, "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
def dropout(g, dtype):
    return (), options(g, p=[0, 0.2, 0.5, 1]), [[g.integer(1, 3) for _ in range(g.integer(4, 5))]]


@entry(CLASSES, "Fold")
def fold(g, dtype):
    kernel, size, stride = g.integer(1, 3), [g.integer(3, 5), g.integer(3, 5)], g.integer(1, 2)
    pad, dilation = g.integer(0, 1), g.integer(1, 2) if g.chance(0.3) else 1
    blocks = 1
    for n in size:
        blocks *= max((n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1, 0)
    shape = [g.integer(1, 2), g.integer(1, 2) * kernel * kernel, blocks + (1 if g.chance(0.05) else 0)]
    return (size, kernel), (("stride", stride), ("padding", pad), ("dilation", dilation)), [
        shape if g.chance(0.8) else shape[1:]]


@entry(CLASSES, "Unfold")
def unfold(g, dtype):
    several = lambda low, high: pair(g, low, high)  # noqa: E731
    return (several(1, 3),), options(g, 0.4, stride=lambda: several(1, 2), padding=lambda: several(0, 2),
                                     dilation=lambda: several(1, 2)), [image(g, 2)]


@entry(CLASSES, "Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d")
def upsample(g, dtype):
    return (), resized(g, 2), [image(g, 2, None, False, high=4)]


def resized(g, dims):
    """size or scale_factor of a resize."""
    if g.chance(0.5):
        return (("size", g.integer(1, 6) if g.chance(0.5) else [g.integer(1, 6) for _ in range(dims)]),)
    return (("scale_factor", g.choice([0.5, 2, 1.5, 3, 1.3])),)


@entry(CLASSES, "EmbeddingBag")
def embedding_bag(g, dtype):
    rows = g.integer(2, 5)
    return (rows, small(g)), options(g, 0.3, padding_idx=lambda: g.integer(-rows, rows - 1), max_norm=[0.5, 2],
                                     norm_type=[1, 3], scale_grad_by_freq=[True]) + (
        ("mode", g.choice(["mean", "sum", "max"])),), [("int64", [g.integer(1, 3), g.integer(1, 4)], rows)]


def recurrent(cell):
    def make(g, dtype):
        width, hidden = small(g), small(g)
        lead = [g.integer(1, 3)] if cell else [g.integer(1, 4), g.integer(1, 3)]
        if g.chance(0.2):
            lead = lead[1:]
        extra = options(g, 0.4, bias=[False]) if cell else options(
            g, 0.4, bias=[False], num_layers=[1, 2], batch_first=[True], bidirectional=[True])
        return (width, hidden), extra, [lead + [width]]
    return make


for _name in ("RNN", "LSTM", "GRU"):
    CLASSES[_name], CLASSES[_name + "Cell"] = recurrent(False), recurrent(True)


@entry(CLASSES, "AdaptiveLogSoftmaxWithLoss")
def adaptive_softmax(g, dtype):
    count = g.integer(1, 4)
    return (4, 9, g.choice([[3], [2, 5], [1, 2, 8]])), options(g, 0.4, div_value=[1.5, 2], head_bias=[True]), [
        [count, 4], ("int64", [count], 9)]


@entry(CLASSES, "TransformerDecoderLayer")
def decoder_layer(g, dtype):
    args, extra, (shape,) = encoder_layer(g, dtype)
    memory = list(shape)
    memory[1 if dict(extra).get("batch_first") else 0] = g.integer(1, 3)
    return args, extra, [shape, memory]


@entry(CLASSES, "Transformer")
def transformer(g, dtype):
    batch = g.integer(1, 2)
    first = g.chance(0.3)
    lengths = [g.integer(1, 3), g.integer(1, 3)]
    extra = (("num_encoder_layers", g.integer(1, 2)), ("num_decoder_layers", g.integer(1, 2)),
             ("dim_feedforward", 3), ("dropout", 0.0)) + options(g, 0.3, activation=["gelu"], norm_first=[True],
                                                               bias=[False])
    if first:
        extra += (("batch_first", True),)
    return (4, 2), extra, [[batch, n, 4] if first else [n, batch, 4] for n in lengths]


def stacked(name, layer):
    def make(g, dtype):
        args, extra, inputs = CLASSES[layer](g, dtype)
        return (Call("nn", layer, args, extra), g.integer(1, 2)), (), inputs
    return make


CLASSES["TransformerEncoder"] = stacked("TransformerEncoder", "TransformerEncoderLayer")
CLASSES["TransformerDecoder"] = stacked("TransformerDecoder", "TransformerDecoderLayer")


def described(row):
    """A layer with the arguments of its row, and inputs of the same shapes."""
    def make(g, dtype):
        chosen = options(g, **{name: [value] for name, value in row["options"].items()})
        return tuple(row["arguments"]), chosen, [
            (kind, shape, int(most) + 1) if kind == "int64" else shape for shape, kind, most in row["inputs"]]
    return make


_losses = {row["name"] for row in LOSSES.values()}
for _name, _row in LAYERS.items():
    if _row.get("inputs") and _name not in _losses:
        CLASSES.setdefault(_name, described(_row))
