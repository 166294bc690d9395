"""torchvision's ResNets and timm's ViT with random weights, in float32.

usage: vision.py MODEL BATCH SIZE BLOCKS     a step of training: forward, backward and SGD with momentum

Threads come from OMP_NUM_THREADS. The median of processor time over the blocks, after one that does not count. Of
contiguous and channels-last images and weights, the faster counts; the
peak of the resident memory is that of contiguous ones.
"""
import resource
import statistics
import sys
import time

import timm
import torch
import torchvision


def run(name, batch, size, blocks, memory_format):
    torch.manual_seed(1)
    make = getattr(torchvision.models, name, None)
    model = make(num_classes=100) if make else timm.create_model(name, num_classes=100)
    model = model.train().to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, size, size).to(memory_format=memory_format)
    labels = torch.randint(0, 100, (batch,))
    times = []
    for block in range(blocks + 1):
        begin = time.process_time()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if block > 0:
            times.append(time.process_time() - begin)
    return 1e3 * statistics.median(times)


NAME, BATCH, SIZE, BLOCKS = sys.argv[1], *map(int, sys.argv[2:5])
PLAIN = run(NAME, BATCH, SIZE, BLOCKS, torch.contiguous_format)
print("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
LAST = run(NAME, BATCH, SIZE, BLOCKS, torch.channels_last) if NAME.startswith("resnet") else PLAIN
print("step_ms", min(PLAIN, LAST))
print("contiguous_ms", PLAIN)
print("channels_last_ms", LAST)
