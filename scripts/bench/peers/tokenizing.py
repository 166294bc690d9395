"""Tokenizing by Hugging Face's tokenizers: 10,000 lines of SST-2 as a batch, or tinyshakespeare as one text.

usage: tokenizing.py DATA MODEL TEXT      MODEL: minilm, tokenizers/gpt2, llama3, unigram;
TEXT: sst2, tinyshakespeare

Prints the median time of seven calls of encode_batch, without making arrays of what it gives; the first is none of
them.
"""
import math
import sys
import time

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

root, folder, what = sys.argv[1:4]
if folder == "minilm":
    tokenizer = Tokenizer.from_file(f"{root}/minilm/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
elif folder == "llama3":
    gpt2 = f"{root}/tokenizers/gpt2"
    vocab, merges = models.BPE.read_file(f"{gpt2}/vocab.json", f"{gpt2}/merges.txt")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
               r"\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
elif folder == "unigram":
    lines = open(f"{root}/minilm/vocab.txt", encoding="utf-8").read().splitlines()
    tokenizer = Tokenizer(models.Unigram([(line[2:] if line.startswith("##") else "\u2581" + line, -math.log(i + 1))
                                          for i, line in enumerate(lines)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
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
