"""The tables of spec/cases, which accelhost prints (scripts/spec_cases.lua): $ACCELHOST_BINARY, or build/accelhost."""
import json
import os
import re
import subprocess

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def read(name):
    """The rows of spec/cases/NAME.lua."""
    binary = os.path.abspath(os.environ.get("ACCELHOST_BINARY") or os.path.join(ROOT, "build", "accelhost"))
    text = subprocess.run([binary, "scripts/spec_cases.lua", name], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(text)


def python_of(lua):
    """nn.X(1, {eps = {2, 3}, affine = true}) -> nn.X(1, eps = (2, 3), affine = True)"""
    text, named = [], []
    for i, letter in enumerate(lua):
        if letter == "{":
            named.append(re.match(r"\w+ = ", lua[i + 1:]) is not None)
            text.append("" if named[-1] else "(")
        elif letter == "}":
            text.append("" if named.pop() else ")")
        else:
            text.append(letter)
    return "".join(text).replace("true", "True").replace("false", "False").replace("nil", "None")
