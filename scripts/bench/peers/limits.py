"""Ops that memory binds, in PyTorch on one thread: the rows of limits.lua.

usage: limits.py PATTERN     prints the row's name, a tab and the minimum of its processor time in seconds
"""
import re
import sys
import time

import torch
from torch.nn import functional as F

ROWS, WIDTH, WORDS = 16384, 1024, 50257
PATTERN = sys.argv[1].replace("%", "\\")


def show(name, run, rounds=8):
    """`run` returns its time, or None where all of it counts."""
    if not re.search(PATTERN, name):
        return
    best = float("inf")
    for i in range(rounds + 1):
        begin = time.process_time()
        own = run()
        spent = time.process_time() - begin if own is None else own
        if i > 0:
            best = min(best, spent)
    print(f"{name}\t{best}")


def drop(_):
    """Free a result."""


def backward_of(forward, arrived):
    """A run that times the backward of forward() alone."""
    def run():
        y = forward()
        begin = time.process_time()
        y.backward(arrived)
        return time.process_time() - begin
    return run


def gradient(forward, x):
    return backward_of(lambda: forward(x.detach().requires_grad_()), x)


def cross_entropy():
    logits = torch.randn(512, WORDS, requires_grad=True)
    labels = torch.randint(0, WORDS, (512,))

    def run():
        F.cross_entropy(logits, labels).backward()
        logits.grad = None
    return run


def embedding():
    table = torch.nn.Embedding(WORDS, 512)
    ids = torch.randint(0, WORDS, (1024,))

    def forward():
        table.zero_grad()
        return table(ids)
    return backward_of(forward, torch.randn(1024, 512))


def adamw():
    weight = torch.nn.Parameter(torch.randn(ROWS, WIDTH))
    optimizer = torch.optim.AdamW([weight], lr=1e-3, fused=True)
    weight.grad = torch.randn(ROWS, WIDTH)

    def run():
        torch.nn.utils.clip_grad_norm_([weight], 1)
        optimizer.step()
    return run


torch.set_num_threads(1)
X, LAYER = torch.randn(ROWS, WIDTH), torch.nn.LayerNorm(WIDTH)
with torch.no_grad():
    show("layer_norm", lambda: drop(LAYER(X)))
    show("softmax", lambda: drop(F.softmax(X, 1)))
    show("gelu", lambda: drop(F.gelu(X)))
    show("dropout", lambda: drop(F.dropout(X, 0.1)))
show("gradient of layer_norm", gradient(LAYER, X))
show("gradient of softmax", gradient(lambda leaf: F.softmax(leaf, 1), X))
show("gradient of gelu", gradient(F.gelu, X))
show("gradient of dropout", gradient(lambda leaf: F.dropout(leaf, 0.1), X))
show("cross_entropy and gradient", cross_entropy())
show("gradient of embedding", embedding())
show("clipping and AdamW", adamw())
