"""A training step of transformers' DistilBERT of the shape of distilbert-base with random weights, in float32.

usage: encoder.py full BLOCKS      8 texts of 128 tokens
       encoder.py padded BLOCKS    8 texts of 16, 32, ... 128 tokens, padded to 128

A step is forward, backward and AdamW with dropout. Threads come from OMP_NUM_THREADS. The median of processor time over
the blocks, after one that does not count, and the peak of the resident memory.
"""
import resource
import statistics
import sys
import time

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
times = []
for block in range(int(sys.argv[2]) + 1):
    begin = time.process_time()
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if block > 0:
        times.append(time.process_time() - begin)
print("step_ms", 1e3 * statistics.median(times))
print("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
