"""The kinds of programs and how often each is made."""

import torch

from algebra import emit_algebra
from composed import emit_composed
from generate import Generator, Give
import functionals  # noqa: F401  (these two fill the tables of modules.py)
import layers  # noqa: F401
from losses import emit_loss
from modules import emit_functional, emit_init, emit_module
from ops import OpTable, emit_index, emit_op, emit_operator, emit_small, emit_split
from program import Call
from training import emit_training
from utilities import emit_utility

MAX_TRIES = 60


class Programs:
    """program(seed) -> Generator with its statements made."""

    def __init__(self, rows):
        self.rows = rows
        self.table = OpTable(rows)
        self.kinds = [(self.ops, 12), (emit_module, 5), (emit_functional, 4), (emit_loss, 3), (emit_training, 2),
                      (emit_init, 0.5), (emit_algebra, 2),
                      (emit_utility, 2)]
        torch.manual_seed(0)
        self.fresh_state = torch.get_rng_state()

    def make(self, seed):
        g = Generator(seed, self.rows)
        kind = g.random.choices([k for k, _ in self.kinds], [w for _, w in self.kinds])[0]
        attempt(g, lambda: kind(g))
        if not torch.equal(torch.get_rng_state(), self.fresh_state):
            g.let(Call("", "rand", ([2],), ()), "r")  # both must have drawn as much
        return g

    def ops(self, g):
        for _ in range(g.integer(1, 3)):
            g.literal()
        if g.chance(0.5):
            attempt(g, g.view)
        wanted = len(g.statements) + g.integer(1, 5)
        for _ in range(MAX_TRIES):
            if len(g.statements) >= wanted:
                break
            attempt(g, lambda: self.step(g))
        if g.gradients:
            attempt(g, g.backward)

    def step(self, g):
        kind = g.random.choices(["op", "composed", "operator", "index", "split", "small", "view",
                                 "backward"], [20, 14, 3, 3, 1, 3, 2, 0.5])[0]
        if kind == "op":
            emit_op(g, self.table.choose(g))
        elif kind == "backward":
            g.backward()
        elif kind == "view":
            g.view()
        else:
            {"composed": emit_composed, "operator": emit_operator, "index": emit_index, "split": emit_split,
             "small": emit_small}[kind](g)


def attempt(g, action):
    """Do something to the program; what cannot be had, and what PyTorch refuses to look at, is left."""
    try:
        action()
    except (Give, RuntimeError):
        pass
