"""Random programs on both sides. usage: run.py [options]; see --help.

The programs run in a child process: one in which PyTorch crashes is reported and left out, and another child
continues."""

import argparse
import mmap
import os
import pickle
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter

from judge import compare, without_rounding
from known import KNOWN, known
from program import LUA_PRELUDE, PY_PRELUDE
from programs import Programs
from reduce import difference_of, reduce
from sides import Accelhost, Torch

BATCH = 50


def show(difference, seed):
    statements = difference.statements
    print(f"\n=== seed {seed}: {difference.kind} in {difference.call or 'the program'} ({difference.name})")
    print("Lua:\n" + "\n".join("  " + s.lua() for s in statements))
    print("Python:\n" + "\n".join("  " + s.py() for s in statements))
    print(f"accelhost: {difference.ours}\nPyTorch:   {difference.theirs}", flush=True)


class Progress:
    """What a child leaves for its successor: the seed at work, the next batch, and the counts so far."""

    def __init__(self):
        self.seed = mmap.mmap(-1, 8)
        self.file = tempfile.NamedTemporaryFile()
        self.skip = set()

    def at(self, seed):
        self.seed[:] = struct.pack("q", seed)

    def crashed_at(self):
        return struct.unpack("q", self.seed[:])[0]

    def save(self, *state):
        self.file.seek(0)
        pickle.dump(state, self.file)
        self.file.flush()

    def load(self):
        self.file.seek(0)
        return pickle.load(self.file)


class Run:
    def __init__(self, options, progress=None):
        self.options, self.progress = options, progress or Progress()
        self.side = Accelhost(options.binary, os.path.join(os.path.dirname(__file__), "worker.lua"))
        self.programs = Programs(self.side.rows())
        self.counts, self.groups, self.later = Counter(), {}, []

    def batch(self, seeds):
        made = []
        for seed in seeds:
            if seed in self.progress.skip:
                continue
            self.progress.at(seed)
            program = self.programs.make(seed)
            made.append((seed, program.statements, program.outcome()))
            self.side.submit(program.statements)
        submitted = True
        for seed, statements, theirs in made:
            ours = self.side.outcome(statements, submitted)
            submitted = submitted and not ours.crash
            self.judge(seed, statements, ours, theirs)

    def judge(self, seed, statements, ours, theirs):
        self.counts["programs"] += 1
        self.counts["statements"] += len(statements)
        difference = compare(ours, theirs, statements)
        if not difference:
            return
        self.later.append((seed, difference, ours, theirs))

    def explain(self, seed, difference, ours, theirs):
        entry = known(difference)
        if not entry:
            difference = without_rounding(difference, ours, theirs)
            if not difference:
                self.counts["rounding"] += 1
                return
            entry = known(difference)
        if not entry:
            difference = difference_of(self.side, difference.statements)
            if not difference:
                self.counts["gone"] += 1
                return
            if not self.options.no_reduce and self.groups.get(group(difference), 0) < 3:
                difference = reduce(self.side, difference)
            entry = known(difference)
        if entry:
            entry.count += 1
            self.counts["known"] += 1
            if entry.count <= self.options.known:
                print(f"\n--- {entry.reason}", end="")
                show(reduce(self.side, difference), seed)
            return
        self.counts["differences"] += 1
        key = group(difference)
        self.groups[key] = self.groups.get(key, 0) + 1
        if self.groups[key] <= self.options.show:
            show(difference, seed)

    def range(self, first, end):
        """All seeds from first on, a batch at a time."""
        for start in range(first, end, BATCH):
            self.later = []
            self.batch(range(start, min(start + BATCH, end)))
            for item in self.later:
                self.progress.at(item[0])
                self.explain(*item)
            self.progress.save(start + BATCH, self.counts, self.groups, [entry.count for entry in KNOWN])

    def go_on(self):
        """Take up what the child before has left; the next seed."""
        following, self.counts, self.groups, known_counts = self.progress.load()
        for entry, count in zip(KNOWN, known_counts):
            entry.count = count
        return following


def supervised(options):
    """Run the programs in children, each resuming where PyTorch has crashed the one before; all counts."""
    progress = Progress()
    progress.save(options.first, Counter(), {}, [0] * len(KNOWN))
    while True:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run = Run(options, progress)
                run.range(run.go_on(), options.first + options.count)
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            break
        seed = progress.crashed_at()
        if not os.WIFSIGNALED(status):
            sys.exit(f"the comparison itself failed at seed {seed}")
        print(f"\n=== seed {seed}: PyTorch ended with signal {os.WTERMSIG(status)}", flush=True)
        following, counts, groups, known_counts = progress.load()
        counts["crashes"] += 1
        progress.save(following, counts, groups, known_counts)
        progress.skip.add(seed)
    return progress


def group(difference):
    detail = ""
    if difference.kind == "error":
        detail = "ours fails" if difference.theirs == "." else "PyTorch fails"
    return f"{difference.kind} {difference.call} {detail}".strip()


def one(options):
    """A single program, with what both sides make of it."""
    run = Run(options)
    program = run.programs.make(options.seed)
    for statement, status in zip(program.statements, program.statuses):
        print(f"{statement.lua()}\n    {statement.py()}    -- {status}")
    difference = difference_of(run.side, program.statements)
    if difference:
        show(difference, options.seed)
        show(reduce(run.side, difference), options.seed)
        entry = known(difference)
        print(f"known: {entry.reason if entry else 'no'}")
    else:
        print("no difference")


def main():
    parser = argparse.ArgumentParser(description="Random programs in accelhost and in PyTorch.")
    parser.add_argument("--binary", default="build/accelhost")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=100000, help="number of programs")
    parser.add_argument("--seed", type=int, help="show one program only")
    parser.add_argument("--show", type=int, default=2, help="programs shown of each group of differences")
    parser.add_argument("--known", type=int, default=0, help="programs shown of each known deviation")
    parser.add_argument("--no-reduce", action="store_true", help="show programs as they were made")
    options = parser.parse_args()
    if options.seed is not None:
        one(options)
        return 0
    started = time.time()
    _, c, groups, known_counts = supervised(options).load()
    seconds = time.time() - started
    print()
    for key, count in sorted(groups.items(), key=lambda item: -item[1]):
        print(f"{count:6}  {key}")
    for entry, count in zip(KNOWN, known_counts):
        if count:
            print(f"{count:6}  known: {entry.reason}")
    print(f"{c['programs']} programs, {c['statements']} statements, {c['programs'] / seconds:.0f} programs/s; "
          f"{c['differences']} unexplained in {len(groups)} groups, {c['known']} known, {c['rounding']} rounding, "
          f"{c['crashes']} crashes of PyTorch")
    return 1 if c["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
