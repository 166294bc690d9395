"""PyTorch's best configuration: fused optimizers where a CPU has them, and torch.compile where its steps are faster."""
import os
import time

import torch

# AdamW(fused=True) on a CPU since 2.4.
FUSED = {"fused": True} if tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 4) else {}


def compiled_if_faster(model, step, rounds=8):
    """Return `model`, or its compiled form if that makes step(model) faster; the compiler may be missing or fail.

    BENCH_EAGER in the environment leaves the compiler out, which takes a minute for a large model.
    """
    if not hasattr(torch, "compile") or "BENCH_EAGER" in os.environ:
        return model
    try:
        compiled = torch.compile(model)
        for _ in range(4):
            step(compiled)
    except Exception:
        return model
    seconds = {}
    for candidate in (model, compiled, model, compiled):
        begin = time.perf_counter()
        for _ in range(rounds):
            step(candidate)
        spent = time.perf_counter() - begin
        seconds[candidate] = min(spent, seconds.get(candidate, spent))
    return min(seconds, key=seconds.get)
