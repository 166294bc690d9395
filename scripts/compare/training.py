"""Optimizers and schedulers, which are the rows of spec/cases: some steps on a few parameters, whose rates, values and
saved states are compared."""

from generate import FLOATS
from modules import options, read
from program import Binary, Call, Do, Raw

# Those that PyTorch has, by name.
OPTIMIZERS = {row["name"]: row for row in read("optimizers") if not row.get("own")}

SCHEDULERS = {row["name"]: row for row in read("schedulers")}


def value_of(value):
    """A value of the table; a formula of n becomes a function."""
    if not isinstance(value, dict):
        return value
    return Raw(f"function(n) return {value['formula']} end", f"lambda n: {value['formula']}")


def parameters(g, count, rank=None):
    dtype = g.choice(FLOATS)
    refs = []
    for _ in range(count):
        ref = g.literal(g.shape(0, 2) if rank is None else [g.integer(1, 3) for _ in range(rank)], dtype, grad=True)
        refs.append(ref)
    return refs


def grouped(g, name, refs):
    """The parameters as a list, or in groups with options of their own."""
    if len(refs) < 2 or not g.chance(0.35):
        return list(refs)
    decays = "weight_decay" in dict(OPTIMIZERS[name]["drawn"])
    decay = (", weight_decay = 0.05", ", weight_decay=0.05") if decays else ("", "")
    first = Raw(f"{{params = {{{refs[0].lua()}}}, lr = 0.25{decay[0]}}}",
                f"dict(params=[{refs[0].py()}], lr=0.25{decay[1]})")
    rest = ", ".join(r.lua() for r in refs[1:])
    return [first, Raw(f"{{params = {{{rest}}}}}", f"dict(params=[{rest}])")]


def scheduler_of(g, optimizer, names=None):
    """The call that makes a scheduler, and its name."""
    name = g.choice(names or list(SCHEDULERS) + ["SequentialLR", "ChainedScheduler"])
    if name in ("SequentialLR", "ChainedScheduler"):
        names = [row["name"] for row in SCHEDULERS.values() if row.get("part")]
        parts = [scheduler_of(g, optimizer, names)[1] for _ in range(g.integer(1, 3))]
        if name == "ChainedScheduler":
            return name, Call("optim.lr_scheduler", name, (parts,), ())
        marks = sorted(g.random.sample(range(1, 8), len(parts) - 1))
        return name, Call("optim.lr_scheduler", name, (optimizer, parts, marks), ())
    row = SCHEDULERS[name]
    required = tuple(value_of(g.choice(values)) for values in row["required"])
    drawn = {option: [value_of(value) for value in values] for option, values in dict(row["drawn"]).items()}
    return name, Call("optim." + row.get("space", "lr_scheduler"), name, (optimizer,) + required,
                      options(g, 0.5, **drawn))


def losses(g, refs, bent=True):
    """A loss of the parameters as an expression; `bent`: with several lowest places."""
    total = None
    for ref in refs if not g.chance(0.15) else refs[:1]:
        part = Binary("*", ref, ref)
        if bent and g.chance(0.3):
            part = Call(part, "sin", (), ())
        part = Call(part, "sum", (), ())
        total = part if total is None else Binary("+", total, part)
    return total


def emit_training(g):
    name = g.choice(OPTIMIZERS)
    row = OPTIMIZERS[name]
    refs = parameters(g, 1 if row.get("closure") else g.integer(1, 3), 2 if row.get("matrix") else None)
    params, extra = grouped(g, name, refs), options(g, 0.4, **dict(row["drawn"]))
    made = g.let(Call("optim", name, (params,), extra), "o")
    if not made:
        return
    loss = losses(g, refs, not row.get("closure"))
    kind, call = scheduler_of(g, made[0]) if g.chance(0.5) else ("", None)
    scheduler = g.let(call, "z") if call else None
    if row.get("closure"):
        return by_closure(g, made[0], loss)
    many = g.chance(0.4)
    for _ in range(1 if many else g.integer(1, 4)):
        step(g, made[0], refs, loss, kind if scheduler else "", scheduler, 30 if many else 1)
    if g.chance(0.5):
        saved(g, Call("optim", name, (params,), extra), made[0], refs, loss)
    if scheduler and g.chance(0.4):
        saved_scheduler(g, call, scheduler[0], kind)


def step(g, optimizer, refs, loss, kind, scheduler, times):
    """One step, statement by statement, or many in a loop."""
    if times > 1:
        lua = f"local l = {loss.lua()} l:backward() {optimizer.lua()}:step() {optimizer.lua()}:zero_grad()"
        py = f"l = {loss.py()}; l.backward(); {optimizer.py()}.step(); {optimizer.py()}.zero_grad()"
        if scheduler:
            at = "l" if kind == "ReduceLROnPlateau" else ""
            lua += f" {scheduler[0].lua()}:step({at})"
            py += f"; {scheduler[0].py()}.step({at})"
        g.emit(Do(Raw(f"for _ = 1, {times} do {lua} end", f"for _ in range({times}): {py}")))
    else:
        value = g.let(loss, "l")
        g.emit(Do(Call(value[0], "backward", (), ())))
        if g.chance(0.2):
            clip(g, refs)
        g.emit(Do(Call(optimizer, "step", (), ())))
        if scheduler:
            g.emit(Do(Call(scheduler[0], "step", (value[0],) if kind == "ReduceLROnPlateau" else (), ())))
        if g.chance(0.85):
            g.emit(Do(Call(optimizer, "zero_grad", (), () if g.chance(0.7) else (("set_to_none", False),))))
    if scheduler:
        g.let(Call(scheduler[0], "get_last_lr", (), ()), "n", "table")


def by_closure(g, optimizer, loss):
    """Steps of an optimizer that asks for the loss itself."""
    lua, py = optimizer.lua(), optimizer.py()
    closure = Raw(f"function() {lua}:zero_grad() local l = {loss.lua()} l:backward() return l end",
                  f"lambda: ({py}.zero_grad(), l := {loss.py()}, l.backward())[1]")
    for _ in range(g.integer(1, 3)):
        g.let(Call(optimizer, "step", (closure,), ()), "l")


def saved(g, again, optimizer, refs, loss):
    """The state, and a step of a new optimizer that has read it."""
    if g.chance(0.5):
        return show_state(g, optimizer)
    state = g.let(Call(optimizer, "state_dict", (), ()), "_d")
    other = g.let(again, "o")
    if state and other:
        g.emit(Do(Call(other[0], "load_state_dict", (state[0],), ())))
        step(g, other[0], refs, loss, "", None, 3)
        show_state(g, other[0])


def show_state(g, optimizer):
    """Once all steps are done: PyTorch's optimizers share what they read from one state_dict."""
    g.let(Raw(f"{optimizer.lua()}:state_dict().state", f"{optimizer.py()}.state_dict()['state']"), "d")


def saved_scheduler(g, again, scheduler, kind):
    """A new scheduler resumes where the saved one was."""
    state = g.let(Call(scheduler, "state_dict", (), ()), "_d")
    other = g.let(again, "z")
    if state and other:
        g.emit(Do(Call(other[0], "load_state_dict", (state[0],), ())))
        g.emit(Do(Call(other[0], "step", (1,) if kind == "ReduceLROnPlateau" else (), ())))
        g.let(Call(other[0], "get_last_lr", (), ()), "n", "table")


def clip(g, refs):
    kind = g.integer(0, 2)
    if kind == 0:
        g.let(Call("nn.utils", "clip_grad_norm_", (list(refs), g.choice([0.5, 1, 10])),
                   options(g, 0.4, norm_type=[1, 2, 3, float("inf")])), "c")
    elif kind == 1:
        g.let(Call("nn.utils", "get_total_norm", ([Raw(r.lua() + ".grad", r.py() + ".grad") for r in refs],),
                   options(g, 0.4, norm_type=[1, 2, 3, float("inf")])), "c")
    else:
        g.emit(Do(Call("nn.utils", "clip_grad_value_", (list(refs), 0.5), ())))
