"""Random programs. A program is named by its seed; PyTorch runs each statement while it is chosen, so that the next one
can ask for shapes. What fails there is kept now and then: accelhost has to refuse it, too."""

import random

import torch

from program import Binary, Call, Do, Index, Let, Literal, NoGrad, Ref
from sides import Outcome, Snapshot, Torch, all_names

FLOATS = ("float64", "float32")
HALVES = ("float16", "bfloat16")
INTEGERS = ("int64", "int32", "uint8")
KEEP_FAILURES = 0.12
MAX_ELEMENTS = 400

# The kinds of numbers of a program: name, weight.
MOODS = (("small", 5), ("normal", 6), ("unit", 2), ("wide", 1), ("special", 1))
SPECIAL = [float("inf"), float("-inf"), float("nan"), 0, -0.0, 1, -1, 0.5, 1e30, 1e-30]


class Give(Exception):
    """The statement that was being made cannot be had here."""


class Generator:
    """The state of a program in the making."""

    def __init__(self, seed, rows):
        self.random = random.Random(seed)
        self.rows = rows
        self.torch = Torch()
        self.statements, self.statuses = [], []
        self.counts = {}
        self.draws = False  # from the generator of random numbers
        choose = self.random.choices
        self.mood = choose([m for m, _ in MOODS], [w for _, w in MOODS])[0]
        self.dtypes = choose([["float64"], ["float32"], ["float64", "float32"], ["int64"],
                              ["float32", "int64", "bool"], ["float16"], ["bfloat16"],
                              list(FLOATS + INTEGERS + ("bool",)), list(FLOATS + HALVES + INTEGERS + ("bool",))],
                             [8, 4, 2, 2, 3, 1, 1, 3, 1])[0]
        self.gradients = self.random.random() < 0.6

    # Chances.

    def chance(self, p):
        return self.random.random() < p

    def choice(self, items):
        items = list(items)
        if not items:
            raise Give
        return self.random.choice(items)

    def integer(self, low, high):
        if low > high:
            raise Give
        return self.random.randint(low, high)

    def number(self):
        """A plain Lua number: integral ones are integers there."""
        value = self.choice([0, 1, 2, -1, 3, 0.5, -0.5, 2.5, 1.25, 0.1, -3, round(self.random.gauss(0, 2), 2), 10])
        return int(value) if value == int(value) else value

    # Statements.

    def name(self, prefix):
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix]}"

    def emit(self, statement, keep=KEEP_FAILURES):
        """Run a statement and keep it; what fails is kept with a small chance only. Says whether it succeeded."""
        status = self.torch.run(statement)
        if status != "." and not self.chance(keep):
            return False
        self.statements.append(statement)
        self.statuses.append(status)
        return status == "."

    def let(self, expression, prefix="y", how="", quiet=False, keep=KEEP_FAILURES):
        """Evaluate an expression (`quiet`: without gradients) and give its results names; the references, or None
        when it failed. how = "table": accelhost gives a table where PyTorch gives a tuple."""
        def wrapped(names):
            statement = Let(names, expression, how)
            return NoGrad(statement) if quiet else statement
        state = torch.get_rng_state()
        try:
            with torch.set_grad_enabled(not quiet):
                value = self.torch.evaluate(expression)
        except Exception as error:  # whatever PyTorch refuses
            torch.set_rng_state(state)
            if self.chance(keep):
                self.statements.append(wrapped((self.name(prefix),)))
                self.statuses.append(f"{type(error).__name__}: {error}")
            return None
        many = isinstance(value, (tuple, list)) and not isinstance(value, torch.Size)
        values = value if many else [value]
        names = tuple(self.name(prefix) for _ in values)
        if not names:
            raise Give
        self.torch.environment.update(zip(names, values))
        self.statements.append(wrapped(names))
        self.statuses.append(".")
        return [Ref(n) for n in names]

    def outcome(self):
        """PyTorch's outcome of the program that was made."""
        return Outcome(self.statuses, Snapshot().take(self.torch.environment, all_names(self.statements)))

    # Tensors.

    def value(self, ref):
        return self.torch.evaluate(ref)

    def tensors(self):
        return {n: v for n, v in self.torch.environment.items() if isinstance(v, torch.Tensor)}

    def size(self):
        return self.random.choices([0, 1, 2, 3, 4, 5, 7], [1, 6, 12, 12, 8, 6, 2])[0]

    def shape(self, low=0, high=4):
        rank = self.random.choices(range(5), [2, 6, 7, 4, 2])[0]
        return tuple(self.size() for _ in range(min(max(rank, low), high)))

    def literal_values(self, count, dtype, low=None, high=None):
        r = self.random
        if dtype == "bool":
            return [r.random() < 0.5 for _ in range(count)]
        if dtype in INTEGERS or low is not None:
            if low is None:
                low, high = (0, 9) if dtype == "uint8" else (-5, 5)
                if self.mood in ("wide", "special"):
                    low, high = {"uint8": (0, 255), "int32": (-2**31, 2**31 - 1), "int64": (-2**40, 2**40)}[dtype]
            return [r.randint(low, high) for _ in range(count)]
        if self.mood == "small":
            return [r.choice([0, 1, -1, 2, -2, 3, 0.5, -0.5, 1.5, -3, 6, -6]) for _ in range(count)]
        if self.mood == "unit":
            return [round(r.random(), 3) for _ in range(count)]
        if self.mood == "wide":
            return [round(r.gauss(0, 1), 3) * 10.0 ** r.randint(-4, 4) for _ in range(count)]
        if self.mood == "special":
            return [r.choice(SPECIAL) for _ in range(count)]
        return [round(r.gauss(0, 1.5), 3) for _ in range(count)]

    def literal(self, shape=None, dtype=None, low=None, high=None, grad=None, values=None):
        """A new tensor, written out; its reference."""
        shape = self.shape() if shape is None else tuple(shape)
        dtype = dtype or self.choice(self.dtypes)
        count = 1
        for n in shape:
            count *= n
        if count > MAX_ELEMENTS:
            raise Give
        if values is None:
            values = self.literal_values(count, dtype, low, high)
        floating = dtype in FLOATS + HALVES
        wants = floating and (self.gradients and self.chance(0.7) if grad is None else grad)
        name = self.name("x")
        self.emit(Let((name,), Literal(shape, tuple(values), dtype, wants), ""), 1)
        return Ref(name)

    def operand(self, shape=None, dtype=None, low=None, high=None, grad=None):
        """A new tensor to be read: a literal, or now and then a view that lies otherwise in memory."""
        shape = list(self.shape() if shape is None else shape)
        if not shape or not self.chance(0.25):
            return self.literal(shape, dtype, low, high, grad)
        dim, whole = self.integer(0, len(shape) - 1), list(shape)
        kind = self.choice(["transposed", "stepping", "within", "repeated"])
        if kind == "transposed":
            other = self.integer(0, len(shape) - 1)
            whole[dim], whole[other] = whole[other], whole[dim]
        else:
            whole[dim] = {"stepping": 2 * shape[dim], "within": shape[dim] + 2, "repeated": 1}[kind]
        source = self.literal(whole, dtype, low, high, grad)
        views = {"transposed": lambda: Call(source, "transpose", (dim, other), ()),
                 "stepping": lambda: Index(source, ((),) * dim + ((1, max(whole[dim], 1), 2),)),
                 "within": lambda: Call(source, "narrow", (dim, 1, shape[dim]), ()),
                 "repeated": lambda: Call(source, "expand", (shape,), ())}
        return (self.let(views[kind](), "v") or [source])[0]

    def floating(self):
        return self.choice([d for d in self.dtypes if d in FLOATS + HALVES] or ["float32"])

    def pick(self, test=None, shape=None, dtype=None, low=0, high=4, fresh=0.15):
        """A tensor of the program that passes `test`, or a new one."""
        def fits(value):
            return (low <= value.dim() <= high and (shape is None or tuple(value.shape) == tuple(shape)) and
                    (dtype is None or str(value.dtype)[6:] == dtype) and (test is None or test(value)))
        known = [n for n, v in self.tensors().items() if fits(v)]
        if known and not self.chance(fresh):
            return Ref(self.choice(known[-4:] if self.chance(0.7) else known))
        if shape is None:
            shape = self.shape(low, high)
        ref = self.literal(shape, dtype)
        if test is not None and not test(self.value(ref)):
            raise Give
        return ref

    def broadcastable(self, shape):
        """A shape that broadcasts with another one."""
        shape = list(shape)
        for i in range(len(shape)):
            if self.chance(0.2):
                shape[i] = 1
        return tuple(shape[self.integer(0, len(shape)):] if shape and self.chance(0.3) else shape)

    def other(self, ref):
        """A second operand for a tensor."""
        if self.chance(0.25):
            return self.pick()
        return self.pick(shape=self.broadcastable(self.value(ref).shape), fresh=0.5)

    def let_sorted(self, ref):
        return self.let(Call(ref, "sort", (), ()))[0]

    def dim(self, value, wild=0.03):
        if self.chance(wild):
            return self.integer(-5, 5)
        rank = max(value.dim(), 1)
        return self.integer(-rank, rank - 1)

    def dims(self, value):
        """Some different dims."""
        rank = value.dim()
        if self.chance(0.5) or rank < 1:
            return self.dim(value)
        chosen = self.random.sample(range(rank), self.integer(1, rank))
        return [d - rank if self.chance(0.3) else d for d in chosen]

    # Common statements.

    def view(self):
        """A view of some tensor: the layouts that ops have to cope with."""
        source = self.pick(low=1)
        value = self.value(source)
        kind = self.choice(["transpose", "narrow", "select", "expand", "step", "unsqueeze", "diagonal", "flat"])
        if kind == "transpose":
            expression = Call(source, "transpose", (self.dim(value), self.dim(value)), ())
        elif kind == "narrow":
            dim = self.integer(0, value.dim() - 1)
            start = self.integer(0, value.shape[dim])
            expression = Call(source, "narrow", (dim, start, self.integer(0, value.shape[dim] - start)), ())
        elif kind == "select":
            dim = self.integer(0, value.dim() - 1)
            expression = Call(source, "select", (dim, self.integer(0, max(value.shape[dim] - 1, 0))), ())
        elif kind == "expand":
            sizes = [self.integer(1, 3) if n == 1 else n for n in value.shape]
            expression = Call(source, "expand", (sizes if not self.chance(0.3) else [2] + sizes,), ())
        elif kind == "step":
            expression = Index(source, ((self.integer(0, 1), max(value.shape[0], 1), 2),))
        elif kind == "unsqueeze":
            expression = Call(source, "unsqueeze", (self.integer(0, value.dim()),), ())
        elif kind == "diagonal":
            expression = Call(source, "diagonal", (), ())
        else:
            expression = Call(source, "flatten", (), ())
        return self.let(expression, "v")

    def backward(self, first_only=False):
        """Gradients of what depends on a leaf."""
        roots = [n for n, v in self.tensors().items() if v.requires_grad and not v.is_leaf]
        if not roots:
            return
        root = Ref(roots[-1] if self.chance(0.7) else self.choice(roots))
        value = self.value(root)
        total = Call(root, "sum", (), ())
        if value.numel() > 1 and self.chance(0.7):
            # Weights, so that mistakes in the order of a gradient show.
            weight = self.literal(value.shape, str(value.dtype)[6:], grad=False)
            weighted = self.let(Binary("*", root, weight), "w")
            total = Call(weighted[0], "sum", (), ()) if weighted else total
        if self.chance(0.25) and not first_only:
            self.second_order(total)
        else:
            self.emit(Do(Call(total, "backward", (), ())))

    def second_order(self, total):
        leaves = [n for n, v in self.tensors().items() if v.requires_grad and v.is_leaf]
        leaf = self.choice(leaves)
        options = (("create_graph", True), ("allow_unused", True))
        made = self.let(Call("autograd", "grad", (total, [Ref(leaf)]), options), "g", "table")
        if made and isinstance(self.value(made[0]), torch.Tensor) and self.value(made[0]).requires_grad:
            square = self.let(Binary("*", made[0], made[0]), "s")
            if square:
                self.emit(Do(Call(Call(square[0], "sum", (), ()), "backward", (), ())))

