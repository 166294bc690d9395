"""float32 all-reduces one behind the other, over gloo. usage: allreduce_row.py COUNT TURNS

One rank of a job (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); rank 0 prints the mean time of a call.
"""
import os
import sys
import time

import torch
import torch.distributed as dist

count, turns = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
buffer = torch.zeros(count)
for turn in range(-3, turns):
    if turn == 0:
        dist.barrier()
        begin = time.perf_counter()
    dist.all_reduce(buffer)
passed = time.perf_counter() - begin
if int(os.environ["RANK"]) == 0:
    print("call_us %.1f" % (passed / turns * 1e6))
