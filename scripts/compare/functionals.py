"""More functions without state: every F beside those of modules.py and the op table."""

from generate import FLOATS
from layers import image, resized
from modules import CLASSES, FUNCTIONS, entry, is_on, options, small, unary
from program import Call

FUNCTIONS.update({
    "rrelu": unary(lower=[0.1], upper=[0.5], training=[True, False]),
    "alpha_dropout": unary(p=[0.3, 0, 1], training=[True, False]),
    "feature_alpha_dropout": unary(p=[0.3], training=[True, False]),
    "dropout3d": unary(p=[0.3], training=[True, False]),
})


def call(g, name, *args, extra=()):
    return g.let(Call("F", name, args, extra))


@entry(FUNCTIONS, "threshold")
def threshold(g, name):
    return call(g, name, g.operand(dtype=g.floating()), g.choice([0, 0.5, -1]), g.choice([20, -0.5, 0]))


@entry(FUNCTIONS, "prelu")
def prelu(g, name):
    dtype, channels = g.floating(), small(g)
    ref = g.operand([g.integer(1, 3), channels] + list(g.shape(0, 2)), dtype)
    return call(g, name, ref, g.literal((g.choice([1, channels]),), dtype))


@entry(FUNCTIONS, "bilinear")
def bilinear(g, name):
    dtype, a, b, out = g.choice(FLOATS), small(g), small(g), small(g)
    lead = list(g.shape(0, 2))
    return call(g, name, g.operand(lead + [a], dtype), g.operand(lead + [b], dtype), g.operand([out, a, b], dtype),
                extra=options(g, 0.5, bias=lambda: g.literal((out,), dtype)))


@entry(FUNCTIONS, "pdist")
def pdist(g, name):
    return call(g, name, g.operand([g.integer(2, 4), small(g)], g.choice(FLOATS)),
                extra=options(g, 0.5, p=[0, 1, 2, 3, float("inf")]))


@entry(FUNCTIONS, "instance_norm", "rms_norm", "local_response_norm")
def norms(g, name):
    dtype, channels = g.floating(), small(g)
    shape = [g.integer(1, 3), channels] + [g.integer(1, 3) for _ in range(g.integer(1, 2))]
    if name == "rms_norm":
        return call(g, name, g.operand(shape[:1] + shape[2:] + [channels], dtype), [channels],
                    extra=options(g, weight=lambda: g.literal((channels,), dtype), eps=[1e-3]))
    if name == "local_response_norm":
        return call(g, name, g.operand(shape, dtype), g.integer(1, 3), extra=options(g, alpha=[0.5], beta=[0.6], k=[2]))
    return call(g, name, g.operand(shape, dtype), extra=options(
        g, weight=lambda: g.literal((channels,), dtype), bias=lambda: g.literal((channels,), dtype), eps=[1e-3]))


@entry(FUNCTIONS, "interpolate")
def interpolate(g, name):
    dims = g.integer(1, 3)
    mode = g.choice(["nearest", "nearest-exact", "area", ["linear", "bilinear", "trilinear"][dims - 1],
                     "bicubic" if dims == 2 else "nearest"])
    extra = resized(g, dims) + (("mode", mode),)
    if mode.endswith("linear") or mode == "bicubic":
        extra += options(g, 0.5, align_corners=[True, False])
        if dims == 2 and not is_on(extra, "align_corners"):
            extra += options(g, 0.3, antialias=[True])
    if is_on(extra, "scale_factor"):
        extra += options(g, 0.2, recompute_scale_factor=[True])
    return call(g, name, g.operand(image(g, dims, None, False, high=4), g.choice(FLOATS)), extra=extra)


@entry(FUNCTIONS, "affine_grid")
def affine_grid(g, name):
    dims, batch = g.integer(2, 3), g.integer(1, 2)
    theta = g.operand([batch, dims, dims + 1], g.choice(FLOATS))
    return call(g, name, theta, [batch, 1] + [g.integer(1, 3) for _ in range(dims)], extra=(
        ("align_corners", g.chance(0.5)),))


@entry(FUNCTIONS, "grid_sample")
def grid_sample(g, name):
    dims, dtype = g.integer(2, 3), g.choice(FLOATS)
    shape = image(g, dims, None, False, high=3)
    grid = g.operand([shape[0]] + [g.integer(1, 3) for _ in range(dims)] + [dims], dtype)
    return call(g, name, g.operand(shape, dtype), grid, extra=(
        ("mode", g.choice(["bilinear", "nearest"] + (["bicubic"] if dims == 2 else []))),
        ("padding_mode", g.choice(["zeros", "border", "reflection"])), ("align_corners", g.chance(0.5))))


@entry(FUNCTIONS, "fold", "unfold")
def patches(g, name):
    args, extra, (shape,) = CLASSES[name.capitalize()](g, None)
    return call(g, name, g.operand(shape, g.floating()), *args, extra=extra)


@entry(FUNCTIONS, "channel_shuffle", "pixel_shuffle", "pixel_unshuffle")
def shuffles(g, name):
    shape = [g.integer(1, 2), 4, 2 * small(g), 2 * small(g)]
    return call(g, name, g.operand(shape, g.choice(g.dtypes)), 2)


@entry(FUNCTIONS, "max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d",
       "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d",
       "fractional_max_pool3d")
def pools(g, name):
    words = {"lp": "LP", "avg": "Avg", "max": "Max", "adaptive": "Adaptive", "fractional": "Fractional"}
    kind = "".join(words.get(word, word.capitalize()) for word in name[:-2].split("_")) + name[-2:]
    args, extra, (shape,) = CLASSES[kind](g, None)
    return call(g, name, g.operand(shape, g.choice(FLOATS)), *args, extra=extra)


@entry(FUNCTIONS, "max_unpool1d", "max_unpool2d", "max_unpool3d")
def unpool(g, name):
    dims = int(name[-2])
    source = g.operand(image(g, dims, None, False, low=2, high=4), g.choice(FLOATS))
    made = g.let(Call("F", f"max_pool{dims}d", (source, 2), (("return_indices", True),)))
    return made and len(made) == 2 and call(g, name, *made, 2)


@entry(FUNCTIONS, "conv3d", "conv_transpose3d")
def conv(g, name):
    dtype, inputs, out = g.choice(FLOATS), g.integer(1, 2), g.integer(1, 2)
    lead = [inputs, out] if "transpose" in name else [out, inputs]
    weight = g.operand(lead + [g.integer(1, 2) for _ in range(3)], dtype)
    return call(g, name, g.operand([g.integer(1, 2), inputs] + [g.integer(1, 4) for _ in range(3)], dtype), weight,
                extra=options(g, 0.3, stride=[2], padding=[1], dilation=[2], bias=lambda: g.literal((out,), dtype)))


@entry(FUNCTIONS, "embedding_bag")
def embedding_bag(g, name):
    rows, dtype = g.integer(2, 5), g.choice(FLOATS)
    weight = g.operand([rows, small(g)], dtype)
    mode = g.choice(["mean", "sum", "max"])
    extra = (("mode", mode),) + options(g, 0.3, padding_idx=lambda: g.integer(-rows, rows - 1))
    if g.chance(0.5):
        shape = [g.integer(1, 3), g.integer(1, 3)]
        if mode == "sum" and g.chance(0.4):
            extra += (("per_sample_weights", g.literal(shape, dtype)),)
        return call(g, name, g.literal(shape, "int64", 0, rows - 1), weight, extra=extra)
    count = g.integer(1, 6)
    offsets = [0] + sorted(g.integer(0, count) for _ in range(g.integer(0, 3)))
    if g.chance(0.3):
        offsets.append(count)
        extra += (("include_last_offset", True),)
    return call(g, name, g.literal((count,), "int64", 0, rows - 1), weight,
                g.literal((len(offsets),), "int64", values=offsets), extra=extra)


@entry(FUNCTIONS, "triplet_margin_with_distance_loss")
def triplet(g, name):
    shape, dtype = [g.integer(1, 3), g.integer(1, 4)], g.choice(FLOATS)
    return call(g, name, *(g.operand(shape, dtype) for _ in range(3)), extra=options(
        g, 0.4, swap=[True], margin=[0.3, 2], reduction=["sum", "none"]))
