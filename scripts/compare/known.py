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


KNOWN = []


def known(difference):
    for entry in KNOWN:
        if entry.matches(difference):
            return entry
    return None
