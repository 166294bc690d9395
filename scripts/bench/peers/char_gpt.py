"""The model of examples/char_gpt.lua in PyTorch: GPT-2 of 4 layers, 128 wide, on 16 blocks of 128 characters.

usage: char_gpt.py bench STEPS BLOCKS      times of training steps on ready batches, medians over the blocks
       char_gpt.py train FILE STEPS        the example's program: the validation loss in the end, and what it took

Threads come from OMP_NUM_THREADS. Layers, their names and their first weights are those of transformers' GPT-2.
"""
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from best import FUSED, compiled_if_faster

LAYERS, HEADS, WIDTH, BLOCK, BATCH = 4, 4, 128, 128, 16
RATE, WARMUP, DECAY = 4e-3, 100, 0.1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, time_, _ = x.shape
        q, k, v = (part.view(batch, time_, HEADS, -1).transpose(1, 2) for part in
                   self.c_attn(self.ln_1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, time_, WIDTH))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(characters, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, characters, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02 / (math.sqrt(2 * LAYERS) if "proj" in name else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[:ids.size(1)]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def loss_of(model, ids):
    logits = model(ids)[:, :-1]
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))


def new_optimizer(model):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99), **FUSED)


def step_of(model, optimizer, ids):
    loss = loss_of(model, ids)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def bench(steps, blocks):
    model = Gpt(65)
    optimizer = new_optimizer(model)
    batches = [torch.randint(0, 65, (BATCH, BLOCK)) for _ in range(8)]
    model = compiled_if_faster(model, lambda candidate: step_of(candidate, optimizer, batches[0]))
    times, processor = [], []
    for block in range(blocks + 1):
        begin, used = time.perf_counter(), time.process_time()
        for i in range(steps):
            step_of(model, optimizer, batches[i % 8])
        if block > 0:
            times.append((time.perf_counter() - begin) / steps)
            processor.append((time.process_time() - used) / steps)
    typical = sorted(times)[len(times) // 2]
    print("tokens_per_s", BATCH * BLOCK / typical)
    print("step_cpu_ms", sorted(processor)[len(processor) // 2] * 1e3)


def train(path, steps):
    with open(path, "rb") as file:
        content = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    characters, codes = content.unique(return_inverse=True)
    first = int(0.9 * len(codes))
    model = Gpt(len(characters))
    optimizer = new_optimizer(model)

    def rate_of(at):
        if at < WARMUP:
            return (at + 1) / WARMUP
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (at - WARMUP) / max(1, steps - WARMUP)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_of)
    begin, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        starts = torch.randint(0, first - BLOCK + 1, (BATCH,)).tolist()
        step_of(model, optimizer, torch.stack([codes[at:at + BLOCK] for at in starts]))
        scheduler.step()
    print("train_s", time.perf_counter() - begin)
    print("train_cpu_s", time.process_time() - used)
    rest = codes[first:]
    rest = rest[:len(rest) // BLOCK * BLOCK].view(-1, BLOCK)
    with torch.no_grad():
        parts = [loss_of(model, part).item() * len(part) for part in rest.split(4 * BATCH)]
    print("loss", sum(parts) / len(rest))


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(1)
    if sys.argv[1] == "bench":
        bench(int(sys.argv[2]), int(sys.argv[3]))
    else:
        train(sys.argv[2], int(sys.argv[3]))


if __name__ == "__main__":
    main()
