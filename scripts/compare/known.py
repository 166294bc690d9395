"""Deviations that are meant: each with the reason, and how a difference is recognised as it."""

from deviation import ANY, BACKWARD, COMPARED, Known
from known_calls import CALLS
from known_numbers import NUMBERS
from traits import (VIEWS, all_of, any_of, flags, flags_differ, has_empty, is_constant, is_empty, is_nothing,
                    programs_with, statement_with, without_gradients, zeros_or_nothing)

HISTORIES = [
    Known("comparisons written in place: a constant here, in PyTorch a history of zeros", "flags missing kind", ANY,
          test=programs_with(COMPARED)),
    Known("integers never require a gradient", "flags", ANY,
          test=lambda d: d.theirs.dtype in ("int64", "int32", "uint8", "bool")),
    Known("a constant derivative has no history here", "flags", "autograd.grad",
          test=all_of(flags("-l", "r-"), is_constant)),
    Known("nothing where PyTorch hands on the zeros of a second derivative", "missing kind", BACKWARD,
          test=all_of(zeros_or_nothing, programs_with("create_graph"))),
    Known("attention over nothing hands on zeros; PyTorch nothing", "missing", BACKWARD,
          test=all_of(zeros_or_nothing, has_empty, programs_with("scaled_dot_product"))),
    Known("results whose gradient PyTorch refuses at backward have none here", "flags", ANY,
          test=all_of(flags("-l", "r-"),
                      programs_with(r"(unique(_consecutive)?|floor_divide|bincount|bernoulli|poisson|histc|nextafter_?|"
                                    r"heaviside_?)\("))),
    Known("views made without gradients, or before their base required them, have no gradient", "flags", VIEWS,
          test=all_of(flags("-l", "rl"), without_gradients)),
    Known("detach_ takes views", "flags", VIEWS, test=all_of(flags("-l", "r-"), programs_with("detach_"))),
    Known("a derivative that is a constant in PyTorch has a history of zeros", "flags", "autograd.grad",
          test=flags("r-", "-l")),
    Known("gradients of what has no elements may be constants", "flags", BACKWARD, test=has_empty),
    Known("what has no elements may be a constant", "flags",
          "combinations|cartesian_prod|linalg.cond|(nan)?median|mode|trapz|trapezoid", test=has_empty),
    Known("parameters are written from a vector; PyTorch makes them views of it", "alias", ANY,
          test=programs_with("vector_to_parameters")),
    Known("each of several results has memory of its own; PyTorch's are rows of one", "alias", "unravel_index"),
    Known("dropout of channels that does nothing returns its input; PyTorch's a view", "flags",
          r"F\.dropout[13]d|m\d", test=programs_with("ropout[13]d")),
    Known("vander has a gradient, of zeros, also of its first column alone", "missing kind", BACKWARD,
          test=all_of(zeros_or_nothing, programs_with(r"vander\("))),
    Known("a power 0 is a constant in one of the two", "flags", r"(linalg\.)?(matrix_power|vander)"),
    Known("the sign of a determinant has a gradient, of zeros", "missing kind", BACKWARD,
          test=all_of(zeros_or_nothing, programs_with("slogdet|linalg.norm|matrix_rank"))),
    Known("what is empty may be the input itself", "alias flags", r"F\.dropout\w*|unique|m\d", test=is_empty),
    Known("a tensor behind max and min is the other operand, not a dim", "kind", "max|min", theirs=r"^int64\[\]",
          test=statement_with(r"m(ax|in)\([a-z]\d, (true|false|True|False)\)")),
    Known("views of split and unbind stay usable after a write into their base; PyTorch gives them up", "kind", VIEWS,
          theirs="is a view and (its base or|is being)|multiple views|view was created in no_grad mode"),
    Known("a norm with p = 0 has a gradient, of zeros", "missing kind", BACKWARD + "|norm",
          test=all_of(zeros_or_nothing, programs_with("norm.*(p|ord) = 0|dist.*p = 0"))),
    Known("nothing where PyTorch's addmm with beta = 0 hands zeros to its input", "missing kind flags", ANY,
          test=all_of(any_of(is_nothing, flags_differ), programs_with(r"add\w*mm.*beta = 0\b"))),
    Known("two inputs' gradients may be views of one tensor in PyTorch, as nothing there is written in place", "alias",
          BACKWARD, test=lambda d: d.name.endswith(".grad")),
    Known("results are row-major here; PyTorch keeps the order of the input's memory, and then has to copy", "alias",
          r"contiguous|reshape|reshape_as|flatten|unflatten|F\.(pixel|channel)_\w+|ravel|m\d"),
]

KNOWN = CALLS + HISTORIES + NUMBERS


def known(difference):
    """The entry that a difference is an instance of, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry
    return None
