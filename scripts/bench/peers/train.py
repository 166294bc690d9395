"""The training rows in PyTorch: BasicNet or the 784-128-10 MLP on ready batches of 64, AdamW.

usage: train.py NET STEPS BLOCKS      NET: mnist_cnn or mlp; STEPS a block, after 10 steps of warm-up

Threads come from OMP_NUM_THREADS. With RANK, WORLD_SIZE and BENCH_STORE (a file to meet in) it is one rank of a job, in
DistributedDataParallel's best configuration. Rank 0 prints "name value" lines; times are medians over the blocks.
"""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from best import FUSED, compiled_if_faster


class BasicNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)


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
    model = BasicNet() if net == "mnist_cnn" else Mlp()
    if world > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"], rank=rank,
                                             world_size=world)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **FUSED)
    batches = [(torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))) for _ in range(16)]

    def step(i, model):
        images, labels = batches[i % 16]
        loss = F.nll_loss(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    step(0, model)
    first = time.monotonic() - float(os.environ.get("BENCH_START", "nan"))
    for i in range(10):
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
        print("items_per_s", 64 * world / typical)
        print("peak_mb", memory)


main()
