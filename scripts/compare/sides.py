"""The two sides that run a program. Both give an Outcome: a status of each statement ("." or the error's text), and a
record of what every variable holds at the end."""

import ctypes
import fcntl
import os
import select
import subprocess
import warnings

import torch
import torch.nn.functional
from torch import nn

from program import LUA_PRELUDE, PY_PRELUDE, lua, names_of, py  # noqa: F401

warnings.simplefilter("ignore")
torch.set_num_threads(1)

DTYPES = {str(d)[6:]: d for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
                                  torch.uint8, torch.bool)}


class Record:
    """One value: kind "T" (tensor), "N", "B", "S" (scalars), "0" (nil), "E" (could not be read). For tensors `storage`
    is the place of the first variable with the same storage."""

    __slots__ = ("kind", "dtype", "shape", "flags", "storage", "data")

    def __init__(self, kind, data, dtype=None, shape=None, flags=None, storage=None):
        self.kind, self.data, self.dtype, self.shape = kind, data, dtype, shape
        self.flags, self.storage = flags, storage

    def tensor(self):
        if not self.data:
            return torch.empty(self.shape, dtype=DTYPES[self.dtype])
        return torch.frombuffer(bytearray(self.data), dtype=DTYPES[self.dtype]).reshape(self.shape)

    def __str__(self):
        if self.kind != "T":
            return {"0": "nil"}.get(self.kind, str(self.data))
        text = str(self.tensor().tolist())
        flags = f", {self.flags}" if self.flags != "-l" else ""
        return f"{self.dtype}{list(self.shape)}{flags} {text[:300]}"


class Outcome:
    __slots__ = ("statuses", "records", "crash")

    def __init__(self, statuses, records, crash=None):
        self.statuses, self.records, self.crash = statuses, records, crash


def bytes_of(tensor):
    dense = tensor.detach().contiguous()
    return ctypes.string_at(dense.data_ptr(), dense.numel() * dense.element_size()) if dense.numel() else b""


class Snapshot:
    """Records of PyTorch's values."""

    def __init__(self):
        self.records, self.seen, self.count = {}, {}, 0

    def tensor(self, name, value):
        self.count += 1
        storage = self.seen.setdefault(value.untyped_storage()._cdata, self.count)
        flags = ("r" if value.requires_grad else "-") + ("l" if value.is_leaf else "-")
        self.records[name] = Record("T", bytes_of(value), str(value.dtype)[6:], tuple(value.shape), flags, storage)

    def value(self, name, value):
        """Keep a value under a name, and what is inside it under names of its own."""
        if isinstance(value, torch.Tensor):
            self.tensor(name, value)
            if value.is_leaf and value.grad is not None:
                self.tensor(name + ".grad", value.grad)
        elif isinstance(value, bool):
            self.records[name] = Record("B", str(value).lower())
        elif isinstance(value, (int, float)):
            self.records[name] = Record("N", float(value))
        elif isinstance(value, str):
            self.records[name] = Record("S", value)
        elif isinstance(value, torch.dtype):
            self.records[name] = Record("S", str(value)[6:])
        elif value is None:
            self.records[name] = Record("0", "")
        elif isinstance(value, nn.Module):
            for key, item in value.named_parameters():
                self.value(f"{name}.{key}", item)
            for key, item in value.named_buffers():
                self.value(f"{name}.{key}", item)
        elif isinstance(value, torch.optim.Optimizer):
            for i, group in enumerate(value.param_groups):
                self.value(f"{name}.lr{i + 1}", float(group["lr"]))
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                self.value(f"{name}.{key}", value[key])
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                self.value(f"{name}.{i + 1}", item)

    def take(self, environment, names):
        for name in names:
            try:
                self.value(name, environment.get(name))
            except RuntimeError as error:  # a view whose history PyTorch has given up
                self.records[name] = Record("E", str(error))
        return self.records


class Torch:
    """PyTorch, a statement at a time. `after(env, names)` is called when a statement has succeeded."""

    prelude = compile(PY_PRELUDE, "prelude", "exec")

    def __init__(self):
        self.environment = {}
        exec(self.prelude, self.environment)
        torch.default_generator.manual_seed(0)  # torch.manual_seed walks the stack first
        torch.set_grad_enabled(True)

    def run(self, statement):
        """The status of one statement."""
        try:
            exec(statement.py(), self.environment)
            return "."
        except Exception as error:  # whatever a program does wrong is a result
            return f"{type(error).__name__}: {error}"
        finally:
            torch.set_grad_enabled(True)

    def evaluate(self, node):
        """The value of an expression; errors pass."""
        return eval(py(node), self.environment)

    @staticmethod
    def outcome(statements, after=None):
        side = Torch()
        statuses = []
        for statement in statements:
            statuses.append(side.run(statement))
            if after and statuses[-1] == ".":
                after(side.environment, statement)
        return Outcome(statuses, Snapshot().take(side.environment, all_names(statements)))


def all_names(statements):
    """The variables that are compared: all but those that begin with _."""
    names = {}
    for statement in statements:
        for name in names_of(statement):
            if name[0] != "_":
                names[name] = True
    return list(names)


class Accelhost:
    """The program under test: a process that runs programs one after another, started again when it dies."""

    timeout = 20

    def __init__(self, binary, script):
        self.command = [binary, script]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.buffer = b""
        for pipe in (self.process.stdin, self.process.stdout):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def send(self, text):
        if not self.process:
            self.start()
        while select.select([self.process.stdout], [], [], 0)[0]:  # else both sides could wait for room in a pipe
            part = os.read(self.process.stdout.fileno(), 1 << 20)
            if not part:
                break
            self.buffer += part
        try:
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def more(self):
        """Read what has come; raises when the process ended or says nothing for too long."""
        ready, _, _ = select.select([self.process.stdout], [], [], self.timeout)
        part = os.read(self.process.stdout.fileno(), 1 << 20) if ready else None
        if part:
            self.buffer += part
            return
        how = "no answer in 20 s" if part is None else f"died with status {self.process.wait()}"
        self.stop()
        raise EOFError(how)

    def get(self):
        """The next length-prefixed string."""
        while True:
            end = self.buffer.find(b"\n")
            if end >= 0:
                length = int(self.buffer[:end])
                if len(self.buffer) >= end + 1 + length:
                    text = self.buffer[end + 1:end + 1 + length]
                    self.buffer = self.buffer[end + 1 + length:]
                    return text
            self.more()

    def rows(self):
        """The op table: {name: (signature, flags)}."""
        self.send("rows\n")
        table = {}
        while True:
            name = self.get().decode()
            if name == "end":
                return table
            table[name] = (self.get().decode(), self.get().decode())

    def submit(self, statements):
        names = all_names(statements)
        lines = [lua(s).replace("\n", " ") for s in statements]
        self.send(f"program {len(lines)} {len(names)}\n" + "".join(line + "\n" for line in lines + names))

    def outcome(self, statements, submitted=False):
        if not submitted:
            self.submit(statements)
        try:
            statuses = [self.get().decode(errors="replace") for _ in statements]
            records = {}
            while True:
                kind = self.get().decode()
                if kind == "end":
                    return Outcome(statuses, records)
                name = self.get().decode()
                if kind == "T":
                    dtype, shape, flags = self.get().decode(), self.get().decode(), self.get().decode()
                    shape = tuple(int(n) for n in shape.split(",")) if shape else ()
                    records[name] = Record("T", None, dtype, shape, flags, int(self.get()))
                    records[name].data = self.get()
                elif kind == "N":
                    records[name] = Record("N", float(self.get()))
                else:
                    records[name] = Record(kind, self.get().decode(errors="replace") if kind != "0" else "")
        except EOFError as error:
            return Outcome([], {}, str(error))
