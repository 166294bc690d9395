"""Deviations that are meant: each with the reason, and how a difference is recognised as it."""

import re


class Known:
    """kinds: of differences; call: of the statement (regular expression); ours, theirs: of the two sides' texts;
    test: a function of the difference for what these cannot say."""

    def __init__(self, reason, kinds, call="", ours="", theirs="", test=None):
        self.reason, self.kinds, self.test = reason, kinds.split(), test
        self.call = re.compile(f"^({call})$" if call else "")
        self.ours, self.theirs = re.compile(ours), re.compile(theirs)
        self.count = 0

    def matches(self, difference):
        return (difference.kind in self.kinds and self.call.search(difference.call) and
                self.ours.search(str(difference.ours)) and self.theirs.search(str(difference.theirs)) and
                (self.test is None or self.test(difference)))


def all_zero(record):
    return record is not None and record.kind == "T" and not any(record.data)


def without_gradient(difference):
    """A result that has a history in PyTorch, whose gradient is an error, and none here."""
    return difference.ours.flags == "-l" and difference.theirs.flags == "r-"


UNARY_LEAF = r"a (view of a )?leaf that requires grad cannot be changed in place"

KNOWN = [
    # Calls that one side refuses.
    Known("calls with more forms than PyTorch's: options in any combination, numbers for tensors",
          "error", ours=r"^\.$", theirs=r"^TypeError"),
    Known("dtypes for which PyTorch has no kernel", "error", ours=r"^\.$",
          theirs=r"not implemented for|does not support|only supports floating|^NotImplementedError"),
    Known("0-dim tensors have a dim 0 (and -1) wherever a dim is given, in PyTorch almost everywhere", "error",
          call="repeat_interleave", ours=r"^\.$", theirs="tensor has no dimensions"),
    Known("in-place logicals check the leaf as every op does; PyTorch's do not", "error",
          call="logical_(and|or|xor|not)_", ours=UNARY_LEAF, theirs=r"^\.$"),
    Known("the implicit dim of softmax, deprecated in PyTorch, is an error", "error", call=r"F\.(log_)?softmax",
          ours=r"\(dim\) is missing"),
    Known("a write into an expanded tensor is refused always; PyTorch lets some ops do it", "error",
          ours="cannot write in place into an expanded tensor", theirs=r"^\.$"),
    Known("no products of bool", "error", ours="bool has no product", theirs=r"^\.$"),
    Known("prod into bool has no gradient in PyTorch either, which says so at the call", "error", call="prod",
          theirs="Autograd not support dtype"),
    Known("multinomial without replacement refuses to draw weights of 0", "error", call="multinomial",
          ours="weights above 0, fewer than"),
    Known("adaptive pooling checks the number of dims; PyTorch takes one too few", "error",
          call=r"F\.adaptive_avg_pool2d", ours="expected input"),
    Known("channel-wise dropout of inputs without channels, deprecated in PyTorch, is an error", "error",
          call=r"F\.dropout2d|m\d", ours="dropout2d: expected an input"),
    Known("integer layers: F.linear takes floating tensors", "error", call=r"F\.linear", ours="expected a floating"),
    Known("PyTorch asks nothing of an empty tensor's dtype", "error", call="exponential_|lerp",
          ours="expected a floating input", theirs=r"^\.$"),
    Known("detach_ of a view without history does nothing here", "error", call="detach_", ours=r"^\.$",
          theirs="Can't detach views in-place"),
    # Histories.
    Known("results whose gradient PyTorch refuses at backward have none here", "flags",
          call="unique|floor_divide|(m1|F.*)", test=without_gradient),
    Known("views of split and unbind stay usable after a write into their base; PyTorch gives them up", "kind error",
          theirs="is a view and (its base or|is being)|multiple views"),
    Known("nothing where PyTorch accumulates zeros through a graph that no number reaches", "missing",
          test=lambda d: d.ours is None and d.name.endswith(".grad") and all_zero(d.theirs)),
    # Values.
    Known("bincount of nothing keeps the dtype of its weights", "dtype", call="bincount", ours=r"\[\] *$|\[0+\.0"),
]


def known(difference):
    """The entry that a difference is an instance of, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry
    return None
