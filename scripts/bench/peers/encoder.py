"""A training step of transformers' DistilBERT of the shape of distilbert-base with random weights.

usage: encoder.py full BLOCKS [DTYPE]      8 texts of 128 tokens; DTYPE: float32 or bfloat16 (autocast)
       encoder.py padded BLOCKS [DTYPE]    8 texts of 16, 32, ... 128 tokens, padded to 128

A step is forward, backward and AdamW with dropout. Threads come from OMP_NUM_THREADS. The medians of processor time and
elapsed time over the blocks, after one that does not count, compiled if that is faster, and the peak of the resident
memory of eager steps.
"""
import sys

import timing
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

TEXTS, TOKENS = 8, 128
torch.manual_seed(1)
model = DistilBertForSequenceClassification(DistilBertConfig()).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
batch = {"input_ids": torch.randint(1, 30522, (TEXTS, TOKENS)), "labels": torch.arange(TEXTS) % 2,
         "attention_mask": torch.ones(TEXTS, TOKENS, dtype=torch.int64)}
if sys.argv[1] == "padded":
    for i in range(TEXTS):
        batch["attention_mask"][i, TOKENS * (i + 1) // TEXTS:] = 0
HALF = sys.argv[3:] == ["bfloat16"]


def step(net):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=HALF):
        loss = net(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


timing.show_best(model, step, int(sys.argv[2]))
