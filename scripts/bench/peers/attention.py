"""Causal attention of 12 heads of width 64, forward and backward, of views of one product as a linear layer leaves it.

usage: attention.py TOKENS REPEATS      prints the median processor time of one thread
"""
import os
import sys
import time

import torch
from torch.nn import functional as F

tokens, repeats = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(1)
batch = max(1, 2048 // tokens)
packed = torch.randn(batch, tokens, 3, 12, 64, requires_grad=True)
weights = torch.randn(batch, 12, tokens, 64)
times = []
for turn in range(-1, repeats + 1):
    begin = time.process_time()
    q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
    F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(weights)
    packed.grad = None
    if turn > 0:
        times.append(time.process_time() - begin)
print("call_ms", sorted(times)[repeats // 2] * 1e3)
