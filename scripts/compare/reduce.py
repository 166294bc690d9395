"""Makes a differing program smaller for as long as it differs in the same way."""

from judge import compare, without_rounding
from program import Binary, Call, Do, Index, Let, Literal, Node, NoGrad, Set
from sides import Torch

BUDGET = 400  # runs


def difference_of(side, statements):
    """The unexplained difference that a program shows, or None."""
    ours = side.outcome(statements)
    theirs = Torch.outcome(statements)
    if any("NameError" in status for status in theirs.statuses):
        return None  # a reduction removed a variable
    difference = compare(ours, theirs, statements)
    return without_rounding(difference, ours, theirs) if difference else None


def reduce(side, difference):
    """The smallest program found, as a difference of the same kind in the same call."""
    best, budget = difference, BUDGET
    again = True
    while again and budget > 0:
        again = False
        for smaller in candidates(best.statements):
            budget -= 1
            if budget < 0:
                break
            found = difference_of(side, smaller)
            if found and found.kind == best.kind and same_call(found, best):
                best, again = found, True
                break
    return best


def same_call(found, best):
    return found.call == best.call or found.kind in ("crash",) or best.call.startswith("literal")


def candidates(statements):
    """Programs that are a step smaller."""
    for i in reversed(range(len(statements))):
        yield statements[:i] + statements[i + 1:]
    for i, statement in enumerate(statements):
        for smaller in smaller_statements(statement):
            yield statements[:i] + [smaller] + statements[i + 1:]


def smaller_statements(statement):
    if isinstance(statement, NoGrad):
        yield statement.fields[0]
        for inner in smaller_statements(statement.fields[0]):
            yield NoGrad(inner)
    elif isinstance(statement, Let):
        names, expression, how = statement.fields
        if isinstance(expression, Call) and len(names) == 1 and expression.fields[1].endswith("_"):
            yield Do(expression)
        for inner in smaller_nodes(expression):
            yield Let(names, inner, how)
    elif isinstance(statement, Do):
        for inner in smaller_nodes(statement.fields[0]):
            yield Do(inner)
    elif isinstance(statement, Set):
        place, value = statement.fields
        for inner in smaller_nodes(value):
            yield Set(place, inner)
        for inner in smaller_nodes(place):
            yield Set(inner, value)


def smaller_nodes(node):
    """Simpler nodes and values in the place of one."""
    if isinstance(node, Literal):
        yield from smaller_literals(node)
    elif isinstance(node, Call):
        space, name, args, options = node.fields
        for i in range(len(options)):
            yield Call(space, name, args, options[:i] + options[i + 1:])
        for i, (key, value) in enumerate(options):
            for smaller in smaller_nodes(value):
                yield Call(space, name, args, options[:i] + ((key, smaller),) + options[i + 1:])
        if args:
            yield Call(space, name, args[:-1], options)
        for i, value in enumerate(args):
            for smaller in smaller_nodes(value):
                yield Call(space, name, args[:i] + (smaller,) + args[i + 1:], options)
        if isinstance(space, Call):
            yield Call(space.fields[0], name, args, options)
    elif isinstance(node, Binary):
        symbol, left, right = node.fields
        for smaller in smaller_nodes(right):
            yield Binary(symbol, left, smaller)
    elif isinstance(node, Index):
        target, items = node.fields
        if len(items) > 1:
            yield Index(target, items[:-1])
    elif isinstance(node, (list, tuple)):
        for i in range(len(node)):
            yield node[:i] + node[i + 1:]
        for i, value in enumerate(node):
            for smaller in smaller_nodes(value):
                yield node[:i] + type(node)([smaller]) + node[i + 1:]
    elif isinstance(node, float) and node == node and abs(node) != float("inf"):
        if node != int(node):
            yield int(node)
            if round(node, 1) != node:
                yield round(node, 1)
    elif isinstance(node, int) and not isinstance(node, bool) and abs(node) > 2:
        yield 2
        yield node // 2
    elif isinstance(node, Node):
        return


def smaller_literals(node):
    shape, values, dtype, wants = node.fields
    if wants:
        yield Literal(shape, values, dtype, False)
    step = len(values)
    for dim, size in enumerate(shape):
        step = step // size if size else 0
        for keep in {1, size - 1}:
            if 0 < keep < size:
                kept = [v for i, v in enumerate(values) if (i // step) % size < keep]
                yield Literal(shape[:dim] + (keep,) + shape[dim + 1:], tuple(kept), dtype, wants)
                kept = [v for i, v in enumerate(values) if (i // step) % size >= size - keep]
                yield Literal(shape[:dim] + (keep,) + shape[dim + 1:], tuple(kept), dtype, wants)
        if size == 1:
            yield Literal(shape[:dim] + shape[dim + 1:], values, dtype, wants)
    if dtype not in ("bool",):
        simple = tuple(i % 3 + 1 for i in range(len(values)))
        if values != simple and any(v not in (0, 1, 2, 3) for v in values):
            yield Literal(shape, simple, dtype, wants)
        rounded = tuple(round(v) if isinstance(v, float) and abs(v) < 1e15 else v for v in values)
        if rounded != values:
            yield Literal(shape, rounded, dtype, wants)
        for i, v in enumerate(values[:12]):
            if v not in (0, 1):
                yield Literal(shape, values[:i] + (1,) + values[i + 1:], dtype, wants)
    if dtype == "float64":
        return
    if dtype in ("float32", "float16", "bfloat16"):
        yield Literal(shape, values, "float64", wants)
