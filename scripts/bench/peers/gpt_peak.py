"""The peak of the resident memory of training steps of a GPT in PyTorch, as ours/gpt_peak.lua does them.

usage: gpt_peak.py DTYPE STEPS      DTYPE: float32 or bfloat16 (autocast)
"""
import os
import resource
import sys

import torch

import char_gpt
from best import FUSED

char_gpt.LAYERS, char_gpt.HEADS, char_gpt.WIDTH, char_gpt.BLOCK = 6, 6, 384, 256


def main():
    dtype, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    model = char_gpt.Gpt(65)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **FUSED)
    ids = torch.randint(0, 65, (12, 256))
    for _ in range(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype != "float32"):
            loss = char_gpt.loss_of(model, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


main()
