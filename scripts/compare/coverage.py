"""Which names of PyTorch that are here no program draws. usage: coverage.py [--binary PROGRAM] [--count PROGRAMS]

Programs are made as run.py makes them, and run by PyTorch only; what each of their calls names is counted."""

import argparse
import os
import re
import subprocess
from collections import Counter

from program import py
from programs import Programs
from sides import Accelhost

FOLDER = os.path.dirname(os.path.abspath(__file__))
SPACES = {"torch": "", "torch.Tensor": "method", "torch.nn.functional": "F", "torch.nn": "nn",
          "torch.nn.init": "nn.init", "torch.nn.utils": "nn.utils",
          "torch.nn.utils.parametrizations": "nn.utils.parametrizations",
          "torch.linalg": "linalg", "torch.special": "special", "torch.optim": "optim",
          "torch.optim.lr_scheduler": "optim.lr_scheduler", "torch.optim.swa_utils": "optim.swa_utils",
          "torch.autograd": "autograd", "torch.nn.utils.rnn": "nn.utils.rnn"}


def calls(statement, found):
    """Count the names that a statement's text calls, or reads of a variable, by space."""
    for space, name in re.findall(r"((?:\w+\.)*|[)\]]\.)(\w+)\(", py(statement)):
        space = space.rstrip(".")
        found["method" if re.fullmatch(r"_?[a-z]\d+|[)\]]", space) else "" if space == "torch" else space, name] += 1
    for name in re.findall(r"\b[a-z]\d+\.(\w+)", py(statement)):
        found["method", name] += 1


def main():
    parser = argparse.ArgumentParser(description="Names that no random program draws.")
    parser.add_argument("--binary", default="build/accelhost")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=3000)
    options = parser.parse_args()
    programs = Programs(Accelhost(options.binary, os.path.join(FOLDER, "worker.lua")).rows())
    found = Counter()
    for seed in range(options.first, options.first + options.count):
        for statement in programs.make(seed).statements:
            calls(statement, found)
    table = os.path.join(FOLDER, "..", "coverage", "table.lua")
    here = subprocess.run([options.binary, table, "--here"], capture_output=True, text=True, check=True).stdout
    names, missing = Counter(), {}
    for line in here.splitlines():
        space, name = line.split()
        if space not in SPACES:
            continue
        names[space] += 1
        forms = ("", "method") if space in ("torch", "torch.Tensor") else (SPACES[space],)
        if not any((form, name) in found for form in forms):
            missing.setdefault(space, []).append(name)
    for space, count in names.items():
        absent = missing.get(space, [])
        print(f"{space}: {count - len(absent)} of {count} drawn" + (f"; not {' '.join(absent)}" if absent else ""))


if __name__ == "__main__":
    main()
