"""Modules and functions without state, with random options, and the backward of their results."""

import os
import sys

from generate import FLOATS
from program import Call, Do, Dtype

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from spec_cases import read  # noqa: E402 pylint: disable=wrong-import-position

CLASSES, FUNCTIONS = {}, {}


def entry(table, *names):
    def add(function):
        for name in names:
            table[name] = function
        return function
    return add


def options(g, share=0.5, /, **choices):
    """Options with the values of functions or lists, each with a chance."""
    chosen = []
    for name, values in choices.items():
        if g.chance(share):
            chosen.append((name, values() if callable(values) else g.choice(values)))
    g.random.shuffle(chosen)
    return tuple(chosen)


def is_on(chosen, name, default=None):
    return dict(chosen).get(name, default)


def small(g):
    return g.integer(1, 4)


# Modules: function(generator, dtype) -> (arguments, options, [inputs])

@entry(CLASSES, "Linear")
def linear(g, dtype):
    k = small(g)
    return (k, small(g)), options(g, bias=[False, True]), [list(g.shape(0, 2)) + [k]]


@entry(CLASSES, "Bilinear")
def bilinear(g, dtype):
    a, b = small(g), small(g)
    lead = list(g.shape(0, 2))
    return (a, b, small(g)), options(g, bias=[False, True]), [lead + [a], lead + [b]]


def pair(g, low, high):
    return g.integer(low, high) if g.chance(0.6) else [g.integer(low, high), g.integer(low, high)]


def conv(dims, transposed):
    def make(g, dtype):
        groups = g.choice([1, 1, 1, 2])
        inputs, outputs = groups * g.integer(1, 2), groups * g.integer(1, 2)
        several = (lambda low, high: pair(g, low, high)) if dims == 2 else g.integer
        chosen = dict(stride=lambda: several(1, 3), padding=lambda: several(0, 2), dilation=lambda: several(1, 2),
                      bias=[False])
        if transposed:
            chosen["output_padding"] = lambda: several(0, 1)
        elif g.chance(0.15):
            chosen["padding"] = ["same", "valid"]
        if not transposed and g.chance(0.2):
            chosen["padding_mode"] = ["zeros", "reflect", "replicate", "circular"]
        extra = options(g, 0.4, **chosen)
        if groups > 1:
            extra += (("groups", groups),)
        shape = [g.integer(1, 3), inputs] + [g.integer(1, 7) for _ in range(dims)]
        return (inputs, outputs, several(1, 3)), extra, [shape if g.chance(0.9) else shape[1:]]
    return make


for _dims in (1, 2):
    CLASSES[f"Conv{_dims}d"] = conv(_dims, False)
    CLASSES[f"ConvTranspose{_dims}d"] = conv(_dims, True)


def pool(dims, average):
    def make(g, dtype):
        several = (lambda low, high: pair(g, low, high)) if dims == 2 else g.integer
        chosen = dict(stride=lambda: several(1, 3), padding=lambda: several(0, 2), ceil_mode=[True, False])
        chosen.update(dict(count_include_pad=[True, False]) if average else dict(dilation=lambda: several(1, 2)))
        shape = [g.integer(1, 2), g.integer(1, 3)] + [g.integer(1, 7) for _ in range(dims)]
        return (several(1, 4),), options(g, 0.4, **chosen), [shape if g.chance(0.85) else shape[1:]]
    return make


def adaptive(dims):
    def make(g, dtype):
        shape = [g.integer(1, 2), g.integer(1, 3)] + [g.integer(1, 7) for _ in range(dims)]
        size = pair(g, 1, 5) if dims == 2 else g.integer(1, 5)
        return (size,), (), [shape if g.chance(0.85) else shape[1:]]
    return make


for _dims in (1, 2):
    CLASSES[f"MaxPool{_dims}d"] = pool(_dims, False)
    CLASSES[f"AvgPool{_dims}d"] = pool(_dims, True)
    CLASSES[f"AdaptiveAvgPool{_dims}d"] = adaptive(_dims)


@entry(CLASSES, "BatchNorm1d", "BatchNorm2d")
def batch_norm(g, dtype, dims=None):
    channels = small(g)
    extra = options(g, 0.3, eps=[1e-3, 0.1], momentum=[0.5, 0.01, 0], affine=[False], track_running_stats=[False])
    shape = [g.integer(1, 4), channels] + [g.integer(1, 4) for _ in range(g.integer(0, 2))]
    return (channels,), extra, [shape]


@entry(CLASSES, "LayerNorm")
def layer_norm(g, dtype):
    normalized = [small(g) for _ in range(g.integer(1, 2))]
    extra = options(g, 0.3, eps=[1e-3, 0.1], elementwise_affine=[False], bias=[False])
    size = normalized[0] if len(normalized) == 1 and g.chance(0.5) else normalized
    return (size,), extra, [list(g.shape(0, 2)) + normalized]


@entry(CLASSES, "GroupNorm")
def group_norm(g, dtype):
    groups = g.integer(1, 3)
    channels = groups * g.integer(1, 2)
    shape = [g.integer(1, 3), channels] + [g.integer(1, 3) for _ in range(g.integer(0, 2))]
    return (groups, channels), options(g, 0.3, eps=[1e-3], affine=[False]), [shape]


@entry(CLASSES, "Embedding")
def embedding(g, dtype):
    rows = g.integer(1, 5)
    shape = list(g.shape(0, 2))
    return (rows, small(g)), options(g, 0.3, padding_idx=lambda: g.integer(-rows, rows - 1)), [("int64", shape, rows)]


@entry(CLASSES, "Dropout", "Dropout1d", "Dropout2d")
def dropout(g, dtype):
    shape = [g.integer(1, 3) for _ in range(g.integer(2, 4))]
    return (), options(g, p=[0, 0.2, 0.9, 1], inplace=[False]), [shape]


@entry(CLASSES, "Flatten")
def flatten(g, dtype):
    return (), options(g, 0.4, start_dim=[0, 1, -2], end_dim=[-1, 1, 2]), [list(g.shape(1, 4))]


@entry(CLASSES, "Unflatten")
def unflatten(g, dtype):
    return (1, [2, -1] if g.chance(0.3) else [2, 3]), (), [[small(g), 6, small(g)]]


def activation(row):
    """An activation with the values of its row in spec/cases/activations.lua."""
    values = dict(row["drawn"])

    def make(g, dtype):
        shape = list(g.shape(1 if "dim" in values else 0))
        return (), options(g, 1 if row["required"] else 0.5, **values), [shape]
    return make


# spec/cases/activations.lua
ACTIVATIONS = read("activations")
CLASSES.update({row["name"]: activation(row) for row in ACTIVATIONS})
CLASSES["Identity"] = activation({"drawn": [], "required": False})


@entry(CLASSES, "MultiheadAttention")
def attention(g, dtype):
    heads = g.integer(1, 2)
    width = heads * g.integer(1, 3)
    extra = options(g, 0.3, bias=[False], add_bias_kv=[True], add_zero_attn=[True], batch_first=[True])
    lead = [g.integer(1, 3), g.integer(1, 3)] if g.chance(0.8) else [g.integer(1, 3)]
    shape = lead + [width]
    return (width, heads), extra, [shape, shape, shape]


@entry(CLASSES, "TransformerEncoderLayer")
def encoder_layer(g, dtype):
    heads = g.integer(1, 2)
    width = heads * g.integer(1, 3)
    extra = options(g, 0.3, activation=["relu", "gelu"], layer_norm_eps=[1e-3], batch_first=[True], norm_first=[True],
                    dim_feedforward=[4]) + (("dropout", 0.0 if g.chance(0.7) else 0.3),)
    return (width, heads), extra, [[g.integer(1, 3), g.integer(1, 3), width]]


# spec/cases/layers.lua, by name.
LAYERS = read("layers")
HOLDERS = ("TransformerEncoder", "TransformerDecoder")  # have parameters and no dtype


def emit_module(g):
    """A module is made, run once or twice (sometimes in evaluation) and its gradients are taken."""
    name = g.choice(CLASSES)
    dtype = g.choice(FLOATS)
    args, extra, inputs = CLASSES[name](g, dtype)
    weighty = LAYERS[name]["typed"] or name in HOLDERS
    if LAYERS[name]["typed"] and (dtype == "float64" or g.chance(0.3)):
        extra += (("dtype", Dtype(dtype)),)
    made = g.let(Call("nn", name, args, extra), "m")
    if not made:
        return
    if name in HOLDERS and dtype == "float64":
        g.emit(Do(Call(made[0], "double", (), ())))
    if weighty:
        around(g, made)
    if g.chance(0.25):
        g.emit(Do(Call(made[0], "eval", (), ())))
    for _ in range(2 if g.chance(0.25) else 1):
        refs = []
        for shape in inputs:
            if isinstance(shape, tuple):
                refs.append(g.literal(shape[1], shape[0], 0, shape[2] - 1))
            elif refs and name == "MultiheadAttention" and g.chance(0.5):
                refs.append(refs[0])
            else:
                refs.append(g.operand([0] + shape[1:] if g.chance(0.03) else shape, dtype))
        more = ()
        if name == "MultiheadAttention":
            more = options(g, 0.3, need_weights=[False], average_attn_weights=[False])
        g.let(Call(None, made[0].fields[0], tuple(refs), more), "y")
    g.backward()
    if weighty and g.chance(0.3):
        round_trip(g, made[0], Call("nn", name, args, extra))


def around(g, made):
    """Now and then a norm around the weight, in both of PyTorch's ways."""
    if g.chance(0.12):
        name = g.choice(["weight_norm", "spectral_norm", "parametrizations.weight_norm",
                         "parametrizations.spectral_norm", "parametrizations.orthogonal"])
        g.emit(Do(Call("nn.utils", name, (made[0],), options(g, 0.3, dim=[0, 1]) if "weight" in name else ())))


def round_trip(g, made, again):
    """What a module saves, read by a new one of its kind, which draws other numbers."""
    state = g.let(Call(made, "state_dict", (), ()), "d")
    other = g.let(again, "m")
    if state and other:
        g.emit(Do(Call(other[0], "load_state_dict", (state[0],), ())))


# Functions without state.

def emit_functional(g):
    name = g.choice(FUNCTIONS)
    FUNCTIONS[name](g, name)
    g.backward()


def unary(**choices):
    def make(g, name):
        return g.let(Call("F", name, (g.operand(dtype=g.floating()),), options(g, **choices)))
    return make


FUNCTIONS.update({row["fn"]: unary(**dict(row["drawn"])) for row in ACTIVATIONS if row["fn"]})
FUNCTIONS.update({
    "dropout": unary(p=[0.3, 0, 1], training=[True, False]), "dropout1d": unary(p=[0.3], training=[True, False]),
    "dropout2d": unary(p=[0.3]), "gumbel_softmax": unary(tau=[0.5, 2], hard=[True, False], dim=[-1, 0]),
    "normalize": unary(p=[1, 2, 3, 0.5, float("inf")], dim=[0, 1, -1], eps=[1e-3]),
})


@entry(FUNCTIONS, "pad")
def pad(g, name):
    ref = g.operand(dtype=g.choice(g.dtypes))
    rank = g.value(ref).dim()
    sides = [g.integer(-1, 2) for _ in range(2 * g.integer(0, max(rank, 1)))]
    extra = options(g, 0.4, value=[1, 0.5, -2]) if g.chance(0.7) else options(
        g, 1, mode=["reflect", "replicate", "circular"])
    return g.let(Call("F", "pad", (ref, sides), extra))


@entry(FUNCTIONS, "cosine_similarity", "pairwise_distance")
def distance(g, name):
    ref = g.literal(dtype=g.floating())
    other = g.other(ref)
    extra = options(g, dim=[0, 1, -1], eps=[1e-3, 0.5]) if name == "cosine_similarity" else options(
        g, p=[1, 2, 3, 0.5], eps=[1e-3], keepdim=[True])
    return g.let(Call("F", name, (ref, other), extra))


@entry(FUNCTIONS, "scaled_dot_product_attention")
def scaled(g, name):
    lead = [g.integer(1, 2) for _ in range(g.integer(0, 2))]
    length, source, width = small(g), small(g), small(g)
    dtype = g.choice(FLOATS)
    query = g.operand(lead + [length, width], dtype)
    key, value = g.operand(lead + [source, width], dtype), g.operand(lead + [source, small(g)], dtype)
    extra = options(g, 0.3, is_causal=[True], scale=[0.5, 2])
    if not is_on(extra, "is_causal") and g.chance(0.4):
        mask = g.literal([length, source], g.choice(["bool", dtype]), grad=False)
        extra += (("attn_mask", mask),)
    return g.let(Call("F", name, (query, key, value), extra))


@entry(FUNCTIONS, "layer_norm", "group_norm", "batch_norm")
def norms(g, name):
    dtype = g.floating()
    channels = small(g)
    shape = [g.integer(1, 3), channels] + [g.integer(1, 3) for _ in range(g.integer(0, 2))]
    if name == "layer_norm":
        shape = shape[:1] + [g.integer(1, 3), channels]
    ref = g.operand(shape, dtype)
    chosen = dict(weight=lambda: g.literal((channels,), dtype), bias=lambda: g.literal((channels,), dtype))
    if name == "batch_norm":
        args = (ref, g.literal((channels,), dtype, grad=False), g.literal((channels,), dtype, 1, 3, grad=False))
        chosen.update(training=[True, False], momentum=[0.3], eps=[1e-3])
    else:
        args = (ref, [channels] if name == "layer_norm" else g.choice([1, channels]))
        chosen.update(eps=[1e-3, 1])
    return g.let(Call("F", name, args, options(g, **chosen)))


@entry(FUNCTIONS, "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
def conv_function(g, name):
    dims = int(name[-2])
    _, extra, (shape,) = CLASSES[f"Conv{dims}d"](g, None)
    dtype = g.choice(FLOATS)
    transposed = "transpose" in name
    groups = is_on(extra, "groups", 1)
    extra = tuple((k, v) for k, v in extra if k in ("stride", "padding", "dilation", "groups") and not (
        transposed and isinstance(v, str)))
    inputs = shape[-1 - dims]
    out = small(g)
    lead = [inputs, out] if transposed else [out * groups, max(inputs // groups, 1)]
    weight = g.operand(lead + [g.integer(1, 3) for _ in range(dims)], dtype)
    if g.chance(0.3):
        extra += (("bias", g.literal((out * groups,), dtype)),)
    return g.let(Call("F", name, (g.operand(shape, dtype), weight), extra))


@entry(FUNCTIONS, "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d")
def pool_function(g, name):
    dims = int(name[-2])
    kind = {"max": "MaxPool", "avg": "AvgPool", "ada": "AdaptiveAvgPool"}[name[:3]]
    args, extra, (shape,) = CLASSES[f"{kind}{dims}d"](g, None)
    if name == "avg_pool2d" and g.chance(0.2):
        extra += (("divisor_override", g.integer(1, 5)),)
    return g.let(Call("F", name, (g.operand(shape, g.floating()),) + args, extra))


INITS = {"uniform_": dict(a=[-1, 0.5], b=[2, 1]), "normal_": dict(mean=[1], std=[0.1, 2]), "ones_": {}, "zeros_": {},
         "eye_": {}, "xavier_uniform_": dict(gain=[2, 0.5]), "xavier_normal_": dict(gain=[2]),
         "kaiming_uniform_": dict(a=[0.3], mode=["fan_in", "fan_out"], nonlinearity=["relu", "leaky_relu", "linear"]),
         "kaiming_normal_": dict(a=[0.3], mode=["fan_out"], nonlinearity=["relu", "tanh", "selu"]),
         "trunc_normal_": dict(mean=[0.5], std=[0.1, 2], a=[-1], b=[1, 3]), "orthogonal_": dict(gain=[2]),
         "constant_": {}, "dirac_": dict(groups=[1]), "sparse_": dict(std=[0.1])}


def emit_init(g):
    name = g.choice(INITS)
    ref = g.literal(g.shape(0, 4 if name == "dirac_" else 3), g.choice(FLOATS))
    args = (ref, g.number()) if name == "constant_" else (ref, g.choice([0.2, 0.5, 1])) if name == "sparse_" else (ref,)
    g.emit(Do(Call("nn.init", name, args, options(g, **INITS[name]))))

