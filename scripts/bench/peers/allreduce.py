"""A float32 all-reduce of a buffer that its owner has just written, over gloo. usage: allreduce.py COUNT TURNS

One rank of a job (RANK, WORLD_SIZE, BENCH_STORE); rank 0 prints the median time of a call.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

count, turns = int(sys.argv[1]), int(sys.argv[2])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + os.environ["BENCH_STORE"], rank=rank,
                        world_size=world)
buffer = torch.empty(count)
times = []
for turn in range(turns + 10):
    buffer.fill_(rank + turn)
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(buffer)
    if turn >= 10:
        times.append(time.perf_counter() - begin)
assert buffer[count - 1].item() == world * (turns + 9) + world * (world - 1) / 2
if rank == 0:
    print("call_us", sorted(times)[turns // 2] * 1e6)
