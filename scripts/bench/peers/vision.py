"""torchvision's ResNets and timm's ViT with random weights.

usage: vision.py MODEL BATCH SIZE BLOCKS [DTYPE]     a step of training: forward, backward and SGD with momentum
                                                     DTYPE: float32 or bfloat16 (autocast)

Threads come from OMP_NUM_THREADS. The medians of processor time and elapsed time over the blocks, after one that does
not count. Of contiguous and channels-last images and weights, the faster counts, compiled if that is faster still; the
peak of the resident memory is that of contiguous ones, not compiled.
"""
import sys

import timing
import timm
import torch
import torchvision

from best import compiled_if_faster


class Case:
    """A model and its images in one memory format."""

    def __init__(self, memory_format):
        torch.manual_seed(1)
        make = getattr(torchvision.models, NAME, None)
        model = make(num_classes=100) if make else timm.create_model(NAME, num_classes=100)
        self.model = model.train().to(memory_format=memory_format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(BATCH, 3, SIZE, SIZE).to(memory_format=memory_format)
        self.labels = torch.randint(0, 100, (BATCH,))

    def step(self, model):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=HALF):
            loss = torch.nn.functional.cross_entropy(model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def times(self, model):
        return timing.steps(BLOCKS, lambda: self.step(model))


NAME, BATCH, SIZE, BLOCKS = sys.argv[1], *map(int, sys.argv[2:5])
HALF = sys.argv[5:] == ["bfloat16"]
CASE = Case(torch.contiguous_format)
TIMES = CASE.times(CASE.model)
timing.show_peak()
if NAME.startswith("resnet"):
    OTHER = Case(torch.channels_last)
    LAST = OTHER.times(OTHER.model)
    CASE, TIMES = (OTHER, LAST) if LAST < TIMES else (CASE, TIMES)
COMPILED = compiled_if_faster(CASE.model, CASE.step, rounds=2)
if COMPILED is not CASE.model:
    TIMES = CASE.times(COMPILED)
timing.show(*TIMES)
