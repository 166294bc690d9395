"""A program as a list of statements, and its two spellings: the lines that accelhost runs and those that PyTorch runs.

A statement is a tuple of nodes. Every node spells itself for both sides (`lua`, `py`), and what is run is what is
spelt, so that a reduced program can be pasted into either. Nodes are immutable: the reducer makes new ones.
"""

import math

LUA_WORDS = {"repeat", "end", "function", "local", "nil", "not", "and", "or", "then", "until", "in"}
# Names that the two sides spell differently. Lua has `end` for a keyword, Python `from`.
PY_NAMES = {"end_": "end", "repeat_": "repeat"}


class Node:
    __slots__ = ("fields",)

    def __init__(self, *fields):
        self.fields = fields

    def __eq__(self, other):
        return type(self) is type(other) and self.fields == other.fields

    def __hash__(self):
        return hash((type(self).__name__, repr(self.fields)))

    def __repr__(self):
        return f"{type(self).__name__}{self.fields!r}"


class Raw(Node):
    """Text with both spellings: Raw(lua, py)."""

    def lua(self):
        return self.fields[0]

    def py(self):
        return self.fields[1]


class Ref(Node):
    """A variable, or a field of one: Ref("m"), Ref("m.weight")."""

    def lua(self):
        return self.fields[0]

    py = lua


class Dtype(Node):
    def lua(self):
        return f'"{self.fields[0]}"'

    def py(self):
        return f"torch.{self.fields[0]}"


class Literal(Node):
    """A tensor written out: Literal(shape, flat values, dtype, requires_grad)."""

    def _nested(self, spell, open_, close):
        shape, values = self.fields[:2]

        def level(dim, start, count):
            if dim == len(shape):
                return spell(values[start])
            step = count // shape[dim] if shape[dim] else 0
            inner = [level(dim + 1, start + i * step, step) for i in range(shape[dim])]
            return open_ + ", ".join(inner) + close

        return level(0, 0, len(values))

    def lua(self):
        shape, values, dtype, wants = self.fields
        options = f'{{dtype = "{dtype}"' + (", requires_grad = true}" if wants else "}")
        if not values or not shape:
            value = lua_number(values[0]) if values else "0"
            if dtype == "bool":
                value = "1" if values and values[0] else "0"
            return f"accelhost.full({lua(list(shape))}, {value}, {options})"
        return f"accelhost.tensor({self._nested(lua, '{', '}')}, {options})"

    def py(self):
        shape, values, dtype, wants = self.fields
        grad = ", requires_grad=True" if wants else ""
        if not values or not shape:
            value = py(values[0]) if values else "0"
            return f"torch.full({list(shape)}, {value}, dtype=torch.{dtype}{grad})"
        return f"torch.tensor({self._nested(py, '[', ']')}, dtype=torch.{dtype}{grad})"


class Call(Node):
    """Call(space, name, arguments, options): space is a node (a method of it), or the name of a table of functions
    ("" for accelhost / torch, "F", "nn", ...), or None for the call of a variable: Call(None, "m", (x,), ())."""

    def lua(self):
        space, name, args, options = self.fields
        words = [lua(a) for a in args]
        if options:
            words.append("{" + ", ".join(f"{k} = {lua(v)}" for k, v in options) + "}")
        if isinstance(space, Node):
            target = space.lua() if isinstance(space, Ref) else f"({space.lua()})"
            if name in LUA_WORDS:
                return f'{target}["{name}"]({", ".join([target] + words)})'
            return f"{target}:{name}({', '.join(words)})"
        prefix = "" if space is None else (space or "accelhost") + "."
        return f"{prefix}{name}({', '.join(words)})"

    def py(self):
        space, name, args, options = self.fields
        words = [py(a) for a in args]
        words += [f"{PY_NAMES.get(k, k)}={py(v)}" for k, v in options]
        name = PY_NAMES.get(name, name)
        if isinstance(space, Node):
            return f"{space.py() if isinstance(space, Ref) else '(' + space.py() + ')'}.{name}({', '.join(words)})"
        prefix = "" if space is None else (space or "torch") + "."
        return f"{prefix}{name}({', '.join(words)})"


class Binary(Node):
    """Binary(symbol, left, right): arithmetic operators."""

    def lua(self):
        return f"{lua(self.fields[1])} {self.fields[0]} {lua(self.fields[2])}"

    def py(self):
        symbol = {"^": "**"}.get(self.fields[0], self.fields[0])
        return f"{py(self.fields[1])} {symbol} {py(self.fields[2])}"


class Index(Node):
    """t[...]: Index(target, items). An item is an integer, a slice (tuple of 0, 2 or 3 integers), a Ref or "..."."""

    def lua(self):
        target, items = self.fields
        words = []
        for item in items:
            words.append("{" + ", ".join(str(i) for i in item) + "}" if isinstance(item, tuple) else lua(item))
        if len(words) == 1 and not isinstance(items[0], tuple) and items[0] != "...":
            return f"{target.lua()}[{words[0]}]"
        return f"{target.lua()}[{{{', '.join(words)}}}]"

    def py(self):
        target, items = self.fields
        words = []
        for item in items:
            if isinstance(item, tuple):
                words.append(":".join(str(i) for i in item) if item else ":")
            else:
                words.append("..." if item == "..." else py(item))
        return f"{target.py()}[{', '.join(words)}]"


def lua_number(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "0/0"
    if math.isinf(value):
        return "math.huge" if value > 0 else "-math.huge"
    return repr(value)


def lua(value):
    """The Lua spelling of a node or a plain value."""
    if isinstance(value, Node):
        return value.lua()
    if value is None:
        return "nil"
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(lua(v) for v in value) + "}"
    if isinstance(value, str):
        return f'"{value}"'
    return lua_number(value)


def py(value):
    """The Python spelling of a node or a plain value; numbers mean what they mean in Lua, where 2.0 is 2."""
    if isinstance(value, Node):
        return value.py()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(py(v) for v in value) + "]"
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    return repr(value)


class Let(Node):
    """Let(names, expression, how): the results of an expression get names. how: "" as many results as names,
    "table" the expression gives a table in Lua and a tuple or list in Python."""

    def lua(self):
        names, expression, how = self.fields
        text = lua(expression)
        return f"{', '.join(names)} = " + (f"unpack({text})" if how == "table" else text)

    def py(self):
        names, expression, _ = self.fields
        return f"{', '.join(names)}{',' if self.fields[2] == 'table' and len(names) == 1 else ''} = {py(expression)}"


class Do(Node):
    """An expression for its effect."""

    def lua(self):
        return lua(self.fields[0])

    def py(self):
        return py(self.fields[0])


class Set(Node):
    """Set(place, value): place = value, where place is a Ref with a field or an Index."""

    def lua(self):
        return f"{self.fields[0].lua()} = {lua(self.fields[1])}"

    def py(self):
        return f"{self.fields[0].py()} = {py(self.fields[1])}"


class NoGrad(Node):
    """A statement without gradients."""

    def lua(self):
        return f"accelhost.no_grad(function() {self.fields[0].lua()} end)"

    def py(self):
        return f"with torch.no_grad(): {self.fields[0].py()}"


def names_of(statement):
    """The variables that a statement makes."""
    while isinstance(statement, NoGrad):
        statement = statement.fields[0]
    return statement.fields[0] if isinstance(statement, Let) else ()


def call_of(statement):
    """What a statement does, in a word, for grouping: the name of its outermost call."""
    node = statement
    while isinstance(node, (NoGrad, Let, Do, Set)):
        node = node.fields[1] if isinstance(node, (Let, Set)) else node.fields[0]
    if isinstance(node, Call):
        space = node.fields[0]
        return (f"{space}." if isinstance(space, str) and space else "") + node.fields[1]
    if isinstance(node, Binary):
        return node.fields[0]
    return type(node).__name__.lower()


LUA_PRELUDE = """local accelhost = require "accelhost"
local F, nn, optim, autograd = accelhost.nn.functional, accelhost.nn, accelhost.optim, accelhost.autograd
local linalg, special = accelhost.linalg, accelhost.special"""

PY_PRELUDE = """import torch
import torch.nn.functional as F
from torch import nn, optim, autograd, linalg, special, inf, nan"""
