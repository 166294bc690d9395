"""Training with a communication hook: a 1024-2048-2048-10 MLP (6.3 million parameters) on batches of 64, SGD.

usage: hooks.py HOOK STEPS      HOOK: none, fp16, bf16

One rank of a job (RANK, WORLD_SIZE, BENCH_STORE); rank 0 prints the median time of a step.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

name, steps = sys.argv[1], int(sys.argv[2])
rank = int(os.environ["RANK"])
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
dist.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"], rank=rank,
                        world_size=int(os.environ["WORLD_SIZE"]))
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)),
    gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
if name in ("fp16", "bf16"):
    model.register_comm_hook(None, getattr(default_hooks, name + "_compress_hook"))

x, y = torch.randn(64, 1024), torch.randint(0, 10, (64,))
times = []
for step in range(-4, steps + 1):
    begin = time.perf_counter()
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    if step > 0:
        times.append(time.perf_counter() - begin)
if rank == 0:
    print("step_ms", sorted(times)[steps // 2] * 1e3)
dist.barrier()
