"""A message of float32 there and back between two ranks, over gloo. usage: pingpong.py COUNT TURNS

One rank of a job (RANK, WORLD_SIZE, BENCH_STORE); rank 0 prints half the median time of a round.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

count, turns = int(sys.argv[1]), int(sys.argv[2])
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"], rank=rank,
                        world_size=int(os.environ["WORLD_SIZE"]))
buffer = torch.zeros(count)
times = []
for turn in range(-20, turns + 1):
    begin = time.perf_counter()
    if rank == 0:
        dist.send(buffer, 1)
        dist.recv(buffer, 1)
    else:
        dist.recv(buffer, 0)
        dist.send(buffer, 0)
    if turn > 0:
        times.append(time.perf_counter() - begin)
if rank == 0:
    print("message_us", sorted(times)[turns // 2] * 1e6 / 2)
dist.barrier()
