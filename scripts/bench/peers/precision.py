"""A training step in float32 or under autocast in PyTorch, as ours/precision.lua does it.

usage: precision.py NET DTYPE STEPS      NET: cnn, wide or gpt; DTYPE: float32, bfloat16 or float16
"""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from best import FUSED, compiled_if_faster


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(256, 256), nn.Embedding(128, 256)
        self.blocks = nn.Sequential(Block(256, 8), Block(256, 8))
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 256)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).reshape(-1, 256)


def make(net):
    if net == "cnn":
        model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
                              nn.Linear(128, 10))
        return model, torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    if net == "wide":
        model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
        return model, torch.randn(256, 1024), torch.randint(0, 10, (256,))
    return Gpt(), torch.randint(0, 256, (8, 128)), torch.randint(0, 256, (1024,))


def main():
    net, dtype, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(1)
    model, inputs, labels = make(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **FUSED)
    half = torch.float16 if dtype == "float16" else torch.bfloat16

    def step(model):
        with torch.autocast("cpu", dtype=half, enabled=dtype != "float32"):
            loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step(model)
    model = compiled_if_faster(model, step)
    times = []
    for _ in range(steps):
        begin = time.process_time()
        step(model)
        times.append(time.process_time() - begin)
    print("step_ms", 1e3 * sorted(times)[steps // 2])


main()
