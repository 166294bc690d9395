"""torchvision's ResNets and timm's ViT with random weights.

usage: vision.py MODEL BATCH SIZE BLOCKS [DTYPE]     a step of training: forward, backward and SGD with momentum
                                                     DTYPE: float32 or bfloat16 (autocast)

Threads come from OMP_NUM_THREADS. The medians of processor time and elapsed time over the blocks, after one that does
not count. Of contiguous and channels-last images and weights, the faster counts; the peak of the resident memory is
that of contiguous ones.
"""
import sys

import timing
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

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=HALF):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return timing.steps(blocks, step)


NAME, BATCH, SIZE, BLOCKS = sys.argv[1], *map(int, sys.argv[2:5])
HALF = sys.argv[5:] == ["bfloat16"]
PLAIN = run(NAME, BATCH, SIZE, BLOCKS, torch.contiguous_format)
timing.show_peak()
LAST = run(NAME, BATCH, SIZE, BLOCKS, torch.channels_last) if NAME.startswith("resnet") else PLAIN
timing.show(min(PLAIN[0], LAST[0]), min(PLAIN[1], LAST[1]))
