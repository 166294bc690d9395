"""What belongs to no op and no single layer: vectors of parameters, fused and averaged models, packed sequences, hooks,
questions about dtypes, attributes of a tensor."""

from generate import FLOATS, HALVES, INTEGERS
from modules import options, small
from program import Binary, Call, Do, Dtype, Let, Raw, Ref, Set

UTILITIES = {}


def utility(function):
    UTILITIES[function.__name__] = function
    return function


def emit_utility(g):
    UTILITIES[g.choice(UTILITIES)](g)


def module(g, name, *args, extra=()):
    made = g.let(Call("nn", name, args, extra), "m")
    return made and made[0]


def run(g, m, *inputs):
    return g.let(Call(None, m.fields[0], inputs, ()), "y")


@utility
def vectors(g):
    m = module(g, "Linear", small(g), small(g))
    vector = g.let(Call("nn.utils", "parameters_to_vector", (Call(m, "parameters", (), ()),), ()), "y")
    if vector:
        g.backward()
        g.emit(Do(Call("nn.utils", "vector_to_parameters", (
            Raw(f"{vector[0].lua()} * 2", f"{vector[0].py()} * 2"), Call(m, "parameters", (), ())), ())))


@utility
def clipped(g):
    refs = [g.literal(g.shape(0, 2), g.choice(FLOATS), grad=True) for _ in range(g.integer(1, 2))]
    for ref in refs:
        g.emit(Do(Call(Call(Binary("*", ref, ref), "sum", (), ()), "backward", (), ())))
    total = g.literal((), "float32", values=[g.choice([0.5, 2, 10])], grad=False)
    g.emit(Do(Call("nn.utils", "clip_grads_with_norm_", (refs, g.choice([0, 0.5, 1, 20]), total), ())))


@utility
def fused(g):
    dims, inputs, outputs = g.integer(0, 2), g.integer(1, 2), g.integer(1, 3)
    transposed = dims > 0 and g.chance(0.3)
    if dims:
        name = ("ConvTranspose" if transposed else "Conv") + f"{dims}d"
        layer = module(g, name, inputs, outputs, 2, extra=options(g, 0.4, bias=[False], stride=[2]))
        shape = [2, inputs] + [4] * dims
    else:
        layer = module(g, "Linear", inputs, outputs, extra=options(g, 0.4, bias=[False]))
        shape = [3, inputs]
    norm = module(g, f"BatchNorm{max(dims, 1)}d", outputs, extra=options(g, 0.3, affine=[False], eps=[0.1]))
    for part, sources in ((norm, ("running_mean", "running_var")),):
        for source in sources:
            g.emit(Do(Call(Ref(f"{part.fields[0]}.{source}"), "uniform_", (0.5, 2), ())))
    for part in (layer, norm):
        g.emit(Do(Call(part, "eval", (), ())))
    name = "fuse_conv_bn_eval" if dims else "fuse_linear_bn_eval"
    made = g.let(Call("nn.utils", name, (layer, norm), (("transpose", True),) if transposed else ()), "m")
    if made:
        run(g, made[0], g.operand(shape, "float32"))
        g.backward()


@utility
def sequence(g):
    a, b, c = small(g), small(g), small(g)
    between = Call("nn", g.choice(["ReLU", "Tanh", "GELU"]), (), ())
    made = module(g, "Sequential", Call("nn", "Linear", (a, b), ()), between,
                  Call("nn", "Linear", (b, c), ()))
    run(g, made, g.operand([g.integer(1, 3), a], "float32"))
    g.backward()
    g.let(Call(made, "state_dict", (), ()), "d")


@utility
def averaged(g):
    width = small(g)
    m = module(g, "Sequential", Call("nn", "Linear", (width, width), ()), Call("nn", "BatchNorm1d", (width,), ()))
    how = g.integer(0, 3)
    extra = options(g, 0.5, use_buffers=[True])
    kinds = {1: Call("optim.swa_utils", "get_ema_avg_fn", (0.5,), ()),
             2: Call("optim.swa_utils", "get_swa_avg_fn", (), ())}
    multi = {3: Call("optim.swa_utils", "get_ema_multi_avg_fn", (0.25,), ())}
    if how in kinds:
        extra += (("avg_fn", kinds[how]),)
    elif how in multi:
        extra += (("multi_avg_fn", multi[how]),)
    made = g.let(Call("optim.swa_utils", "AveragedModel", (m,), extra), "m")
    if not made:
        return
    for _ in range(g.integer(1, 3)):
        run(g, m, g.literal((3, width), "float32", grad=False))
        g.emit(Do(Call("nn.init", "normal_", (
            Raw(f"{m.lua()}[1].weight", f"{m.py()}[0].weight"),), ())))
        g.emit(Do(Call(made[0], "update_parameters", (m,), ())))
    run(g, made[0], g.literal((2, width), "float32", grad=False))


def lengths_of(g, count, falling):
    lengths = [g.integer(1, 4) for _ in range(count)]
    return sorted(lengths, reverse=True) if falling else lengths


@utility
def padded(g):
    width, falling, dtype = small(g), g.chance(0.6), g.choice(FLOATS)
    lengths = lengths_of(g, g.integer(1, 3), falling)
    refs = [g.literal((n, width), dtype) for n in lengths]
    first = options(g, 0.5, batch_first=[True])
    whole = g.let(Call("nn.utils.rnn", "pad_sequence", (refs,), first + options(
        g, 0.3, padding_value=[-1, 0.5], padding_side=["right", "left"])))
    if g.chance(0.5):
        packed = Call("nn.utils.rnn", "pack_sequence", (refs,), (("enforce_sorted", falling),))
    else:
        packed = Call("nn.utils.rnn", "pack_padded_sequence", (whole[0], lengths),
                      first + (("enforce_sorted", falling),))
    name = g.name("_p")
    if g.emit(Let((name,), packed, "")):  # a PackedSequence is a tuple to Python, but not meant as one here
        g.let(Ref(name + ".data"), "y")
        g.let(Ref(name + ".batch_sizes"), "y")
    g.backward()


@utility
def recurrent_of_packed(g):
    width, dtype, kind = small(g), g.choice(FLOATS), g.choice(["LSTM", "GRU", "RNN"])
    count, falling = g.integer(1, 3), g.chance(0.6)
    lengths = lengths_of(g, count, falling)
    m = module(g, kind, width, 2, extra=(("dtype", Dtype(dtype)),) + options(
        g, 0.3, bidirectional=[True], num_layers=[2]))
    x = g.operand([max(lengths), count, width], dtype)
    packed = Call("nn.utils.rnn", "pack_padded_sequence", (x, lengths), (("enforce_sorted", falling),))
    unpacked = "nn.utils.rnn.pad_packed_sequence"
    g.let(Raw(f"(function(o, h) local y, n = {unpacked}(o) return y, n, h end)({m.lua()}({packed.lua()}))",
              f"(lambda o, h: (*{unpacked}(o), h))(*{m.py()}({packed.py()}))"), "y")
    g.backward(first_only=True)


@utility
def dtypes(g):
    words = FLOATS + HALVES + INTEGERS + ("bool",)
    kind = g.choice(["can_cast", "promote_types", "result_type", "finfo", "iinfo"])
    if kind in ("can_cast", "promote_types"):
        return g.let(Call("", kind, (Dtype(g.choice(words)), Dtype(g.choice(words))), ()), "n")
    if kind == "result_type":
        ref = g.pick()
        return g.let(Call("", kind, (ref, g.number() if g.chance(0.4) else g.pick()), ()), "n")
    word = Dtype(g.choice(words if g.chance(0.1) else FLOATS + HALVES if kind == "finfo" else ("int32", "uint8")))
    field = g.choice(["bits", "min", "max"] + (["eps", "tiny"] if kind == "finfo" else []))
    call = Call("", kind, (word,), ())
    return g.let(Raw(f"{call.lua()}.{field}", f"{call.py()}.{field}"), "n")


@utility
def shapes(g):
    first = list(g.shape())
    words = [first, list(g.broadcastable(first))]
    call = Call("", "broadcast_shapes", tuple(words), ())
    return g.let(Raw(call.lua(), f"list({call.py()})"), "n", "table")


@utility
def attributes(g):
    ref = g.pick(low=2, high=3) if g.chance(0.5) else g.pick()
    name = g.choice(["H", "T", "mH", "mT", "ndim", "itemsize", "nbytes"])
    g.let(Ref(f"{ref.fields[0]}.{name}"), "v")
    kind = g.choice(["storage_offset", "is_contiguous", "stride", "nelement", "ndimension"])
    g.let(Call(ref, kind, (), ()), "n", "table" if kind == "stride" else "")


@utility
def new_tensors(g):
    ref = g.pick()
    shape = list(g.shape())
    kind = g.choice(["new_full", "new_tensor", "as_tensor", "clone"])
    if kind == "new_full":
        return g.let(Call(ref, kind, (shape, g.number()), options(g, 0.3, dtype=[Dtype("float64"), Dtype("int64")])))
    if kind == "new_tensor":
        return g.let(Call(ref, kind, ([g.integer(0, 5), g.integer(-3, 3)],), options(g, 0.3, dtype=[Dtype("float32")])))
    if kind == "as_tensor":
        return g.let(Call("", kind, (ref,), options(g, 0.5, dtype=[Dtype("float64"), Dtype("float32")])))
    return g.let(Call(ref, kind, (), ()))


@utility
def hooked(g):
    ref = g.literal(dtype=g.choice(FLOATS), grad=True)
    made = g.let(Raw(f"{ref.lua()} * {ref.lua()}", f"{ref.py()} * {ref.py()}"))
    target = made[0] if made and g.chance(0.5) else ref
    g.emit(Do(Raw(f"{target.lua()}:register_hook(function(d) return d * 3 end)",
                  f"{target.py()}.register_hook(lambda d: d * 3)")))
    g.backward()


@utility
def unpooled(g):
    dims = g.integer(1, 3)
    shape = [g.integer(1, 2), g.integer(1, 2)] + [g.integer(2, 4) for _ in range(dims)]
    m = module(g, f"MaxPool{dims}d", 2, extra=(("return_indices", True),))
    made = run(g, m, g.operand(shape, g.choice(FLOATS)))
    back = module(g, f"MaxUnpool{dims}d", 2)
    if made and len(made) == 2:
        g.let(Call(None, back.fields[0], tuple(made), options(g, 0.5, output_size=[shape[2:], shape])), "y")
    g.backward()


@utility
def attention(g):
    dtype, heads = g.choice(FLOATS), g.integer(1, 2)
    width = 2 * heads
    lead = [g.integer(1, 3), g.integer(1, 2)]
    x = g.operand(lead + [width], dtype)
    weight, out = g.operand([3 * width, width], dtype), g.operand([width, width], dtype)
    bias = g.literal((3 * width,), dtype)
    extra = options(g, 0.3, need_weights=[False], average_attn_weights=[False])
    words = f"{x.lua()}, {x.lua()}, {x.lua()}, {width}, {heads}, {weight.lua()}, {bias.lua()}"
    more = Call("", "f", (), extra)
    lua_tail = more.lua()[len("accelhost.f("):-1]
    py_tail = more.py()[len("torch.f("):-1]
    g.let(Raw(f"F.multi_head_attention_forward({words}, nil, nil, false, 0, {out.lua()}, nil"
              + (f", {lua_tail})" if lua_tail else ")"),
              f"F.multi_head_attention_forward({words}, None, None, False, 0.0, {out.py()}, None"
              + (f", {py_tail})" if py_tail else ")")), "y")
    g.backward()


@utility
def in_place(g):
    name = g.choice(["relu_", "elu_", "selu_", "celu_", "leaky_relu_", "hardtanh_", "threshold_", "rrelu_"])
    ref = g.literal(dtype=g.floating())
    made = g.let(Raw(f"{ref.lua()} * 1", f"{ref.py()} * 1"))
    if made:
        g.let(Call("F", name, (made[0],) + ((0.1, 3) if name == "threshold_" else ()), ()))
        g.backward()


@utility
def several_gradients(g):
    ref = g.literal(dtype=g.choice(FLOATS), grad=True)
    made = g.let(Raw(f"{ref.lua()} * {ref.lua()}", f"{ref.py()} * {ref.py()}"))
    weight = g.literal(g.value(ref).shape, str(g.value(ref).dtype)[6:], grad=False)
    g.emit(Do(Call("autograd", "backward", ([made[0]], [weight]), ())))
    g.emit(Set(Ref(f"{ref.fields[0]}.grad"), None) if g.chance(0.2) else Do(Call(ref, "detach", (), ())))
