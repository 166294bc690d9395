"""Tokenizing by Hugging Face's tokenizers: 10,000 lines of SST-2 as a batch, or tinyshakespeare as one text.

usage: tokenizing.py DATA MODEL TEXT      MODEL: minilm, tokenizers/gpt2; TEXT: sst2, tinyshakespeare

Prints the median time of seven calls of encode_batch, without making arrays of what it gives; the first is none of
them.
"""
import sys
import time

from tokenizers import Tokenizer, models, pre_tokenizers

root, folder, what = sys.argv[1:4]
if folder == "minilm":
    tokenizer = Tokenizer.from_file(f"{root}/minilm/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
else:
    tokenizer = Tokenizer(models.BPE.from_file(f"{root}/{folder}/vocab.json", f"{root}/{folder}/merges.txt"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
if what == "sst2":
    texts = open(f"{root}/sst2/train.tsv", encoding="utf-8", newline="\n").read().split("\n")[1:10001]
else:
    texts = [open(f"{root}/tinyshakespeare/input.txt", encoding="utf-8", newline="").read()]
times = []
for i in range(8):
    begin = time.perf_counter()
    tokenizer.encode_batch(texts)
    if i > 0:
        times.append(time.perf_counter() - begin)
print("call_ms", sorted(times)[3] * 1e3)
