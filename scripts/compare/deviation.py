"""The class of known deviations, and constructors for frequent ones."""

import re


class Known:
    """kinds: of differences; call: of the statement (regular expression, ANY where it may be all); ours, theirs: of
    the two sides' texts; test: a function of the difference for what these cannot say."""

    def __init__(self, reason, kinds, call, ours="", theirs="", test=None):
        self.reason, self.kinds, self.test = reason, kinds.split(), test
        self.call = re.compile(f"^({call})$" if call else "")
        self.ours, self.theirs = re.compile(ours), re.compile(theirs)
        self.count = 0

    def matches(self, difference):
        return (difference.kind in self.kinds and self.call.search(difference.call) and
                self.ours.search(str(difference.ours)) and self.theirs.search(str(difference.theirs)) and
                (self.test is None or self.test(difference)))


ANY = ""
# Functions of one formula in PyTorch and several ops here, or the other way round.
MANY_STEPS = (r"[mM]ish|cosine_similarity|Norm|_norm\(|logsigmoid|cross_entropy|BCE|CrossEntropy|lerp|Bilinear|pow|\^|"
              r"[cC]onv|scaled_dot|multi_?head|Multihead|Transformer|std|var|sinc|RNN|LSTM|GRU")
FINE = r"^\.$"
MODULE = r"m\d"  # the call of a module
BACKWARD = r"backward|autograd\.grad"
COMPARED = r":(eq|ne|lt|le|gt|ge|logical_\w+)_\("
UNARY_LEAF = r"a (view of a )?leaf that requires grad cannot be changed in place"


def refused(reason, call, ours, test=None):
    """What fails here and runs in PyTorch."""
    return Known(reason, "error", call, ours=ours, theirs=FINE, test=test)


def allowed(reason, call, theirs, test=None):
    """What runs here and fails in PyTorch."""
    return Known(reason, "error", call, ours=FINE, theirs=theirs, test=test)
