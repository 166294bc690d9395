"""The training rows in PyTorch: a net of nets.py on ready batches, AdamW.

usage: train.py NET STEPS BLOCKS      STEPS a block, after a warm-up of 10 steps (2 for resnet18)

Threads come from OMP_NUM_THREADS. With RANK, WORLD_SIZE and BENCH_STORE (a file to meet in) it is one rank of a job, in
DistributedDataParallel's best configuration. Rank 0 prints "name value" lines; times are medians over the blocks.
"""
import os
import sys
import time

import torch
import torch.nn as nn

from best import FUSED, compiled_if_faster
from nets import NETS


def peak_memory_mb():
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024


def main():
    net, steps, blocks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    make, batch_size, batch, loss_of = NETS[net]
    model = make()
    if world > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"], rank=rank,
                                             world_size=world)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **FUSED)
    batches = [batch() for _ in range(16)]

    def step(i, model):
        images, labels = batches[i % 16]
        loss = loss_of(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    step(0, model)
    first = time.monotonic() - float(os.environ.get("BENCH_START", "nan"))
    for i in range(2 if "resnet" in net else 10):
        step(i, model)
    memory = peak_memory_mb()
    if world == 1:
        model = compiled_if_faster(model, lambda candidate: step(1, candidate))
    times = []
    for _ in range(blocks):
        begin = time.perf_counter()
        for i in range(steps):
            step(i, model)
        times.append((time.perf_counter() - begin) / steps)
    if world > 1:
        both = torch.tensor([memory])
        torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX)
        memory = both.item()
    if rank == 0:
        typical = sorted(times)[len(times) // 2]
        print("first_step_s", first)
        print("step_ms", typical * 1e3)
        print("items_per_s", batch_size * world / typical)
        print("peak_mb", memory)


main()
