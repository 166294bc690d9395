"""Optimizers and schedulers: a few steps on a few parameters, the rates and the parameters compared."""

from generate import FLOATS
from modules import options
from program import Binary, Call, Do, Raw

OPTIMIZERS = {
    "SGD": dict(lr=[0.1, 0.5], momentum=[0, 0.9], dampening=[0, 0.3], weight_decay=[0.1], nesterov=[True],
                maximize=[True]),
    "Adam": dict(lr=[0.1], betas=[[0.5, 0.9], [0.0, 0.99]], eps=[1e-3, 0.1], weight_decay=[0.1], amsgrad=[True],
                 maximize=[True]),
    "AdamW": dict(lr=[0.1], betas=[[0.5, 0.9]], eps=[1e-3], weight_decay=[0, 0.3], amsgrad=[True], maximize=[True]),
    "RMSprop": dict(lr=[0.1], alpha=[0.5], eps=[1e-3], weight_decay=[0.1], momentum=[0.5, 0.9], centered=[True],
                    maximize=[True]),
    "Adagrad": dict(lr=[0.1, 1], lr_decay=[0.1], weight_decay=[0.1], initial_accumulator_value=[0.5], eps=[1e-3],
                    maximize=[True]),
    "Adadelta": dict(lr=[0.5, 1], rho=[0.5], eps=[1e-3], weight_decay=[0.1], maximize=[True]),
}

# name: (function(generator) -> required arguments, options)
SCHEDULERS = {
    "StepLR": (lambda g: (g.integer(1, 3),), dict(gamma=[0.5])),
    "MultiStepLR": (lambda g: (sorted(g.integer(1, 5) for _ in range(g.integer(1, 3))),), dict(gamma=[0.5])),
    "ConstantLR": (lambda g: (), dict(factor=[0.5], total_iters=[2, 3])),
    "LinearLR": (lambda g: (), dict(start_factor=[0.5], end_factor=[0.8], total_iters=[2, 4])),
    "ExponentialLR": (lambda g: (g.choice([0.5, 0.9]),), {}),
    "PolynomialLR": (lambda g: (), dict(total_iters=[3, 4], power=[2, 0.5])),
    "CosineAnnealingLR": (lambda g: (g.integer(1, 5),), dict(eta_min=[0.01])),
    "CosineAnnealingWarmRestarts": (lambda g: (g.integer(1, 3),), dict(T_mult=[2], eta_min=[0.01])),
    "OneCycleLR": (lambda g: (g.choice([0.5, 1]),), dict(pct_start=[0.5], anneal_strategy=["linear", "cos"],
                   cycle_momentum=[False], base_momentum=[0.7], max_momentum=[0.9], div_factor=[10],
                   final_div_factor=[100], three_phase=[True])),
    "CyclicLR": (lambda g: (g.choice([0.01, 0.1]), g.choice([0.5, 1])),
                 dict(step_size_up=[2, 3], step_size_down=[1, 2], mode=["triangular", "triangular2", "exp_range"],
                      gamma=[0.9], cycle_momentum=[False])),
    "LambdaLR": (lambda g: (Raw("function(n) return 1 / (n + 1) end", "lambda n: 1 / (n + 1)"),), {}),
    "MultiplicativeLR": (lambda g: (Raw("function(n) return 0.5 + n / 10 end", "lambda n: 0.5 + n / 10"),), {}),
    "ReduceLROnPlateau": (lambda g: (), dict(mode=["min", "max"], factor=[0.5], patience=[0, 1], threshold=[0.1, 0.5],
                          threshold_mode=["abs", "rel"], cooldown=[1], min_lr=[0.02])),
}


def parameters(g, count):
    dtype = g.choice(FLOATS)
    refs = []
    for _ in range(count):
        ref = g.literal(g.shape(0, 2), dtype, grad=True)
        refs.append(ref)
    return refs


def make_optimizer(g, refs):
    name = g.choice(OPTIMIZERS)
    extra = options(g, 0.4, **OPTIMIZERS[name])
    params = list(refs)
    if len(refs) > 1 and g.chance(0.35):  # groups with options of their own
        first = Raw(f"{{params = {{{refs[0].lua()}}}, lr = 0.25, weight_decay = 0.05}}",
                    f"dict(params=[{refs[0].py()}], lr=0.25, weight_decay=0.05)")
        rest = ", ".join(r.lua() for r in refs[1:])
        params = [first, Raw(f"{{params = {{{rest}}}}}", f"dict(params=[{rest}])")]
    return g.let(Call("optim", name, (params,), extra), "o")


def make_scheduler(g, optimizer):
    name = g.choice(SCHEDULERS)
    required, choices = SCHEDULERS[name]
    extra = options(g, 0.5, **choices)
    if name == "OneCycleLR":
        extra += (("total_steps", g.integer(5, 8)),)
    return name, g.let(Call("optim.lr_scheduler", name, (optimizer,) + required(g), extra), "z")


def emit_training(g):
    refs = parameters(g, g.integer(1, 3))
    made = make_optimizer(g, refs)
    if not made:
        return
    optimizer = made[0]
    name, scheduler = make_scheduler(g, optimizer) if g.chance(0.5) else ("", None)
    for _ in range(g.integer(1, 4)):
        total = None
        for ref in refs if not g.chance(0.15) else refs[:1]:
            square = g.let(Binary("*", ref, ref), "q")
            if g.chance(0.3):
                square = g.let(Call(square[0] if square else ref, "sin", (), ()), "q")
            part = Call(square[0], "sum", (), ())
            total = part if total is None else Binary("+", total, part)
        loss = g.let(total, "l")
        g.emit(Do(Call(loss[0], "backward", (), ())))
        if g.chance(0.2):
            clip(g, refs)
        g.emit(Do(Call(optimizer, "step", (), ())))
        if scheduler:
            g.emit(Do(Call(scheduler[0], "step", (loss[0],) if name == "ReduceLROnPlateau" else (), ())))
            g.let(Call(scheduler[0], "get_last_lr", (), ()), "n", "table")
        if g.chance(0.85):
            g.emit(Do(Call(optimizer, "zero_grad", (), () if g.chance(0.7) else (("set_to_none", False),))))


def clip(g, refs):
    if g.chance(0.6):
        g.let(Call("nn.utils", "clip_grad_norm_", (list(refs), g.choice([0.5, 1, 10])),
                   options(g, 0.4, norm_type=[1, 2, 3, float("inf")])), "c")
    else:
        g.emit(Do(Call("nn.utils", "clip_grad_value_", (list(refs), 0.5), ())))

