"""The resident memory of training steps of a net in PyTorch, as ours/peak.lua measures it.

usage: peak.py NET STEPS      the nets of nets.py, and bert_tiny, for which transformers is imported
"""
import os
import resource
import sys

import torch
import torch.nn.functional as F

from best import FUSED
from nets import NETS


def bert_tiny():
    """Sentences of 64 tokens; the BERT of 2 layers, 128 wide."""
    import transformers

    def make():
        config = transformers.BertConfig(vocab_size=30522, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                                         intermediate_size=512, num_labels=2)
        return transformers.BertForSequenceClassification(config).train()

    return (make, 32, lambda: (torch.randint(0, 30522, (32, 64)), torch.randint(0, 2, (32,))),
            lambda output, labels: F.cross_entropy(output.logits, labels))


def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def main():
    net, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    make, _, batch, loss_of = bert_tiny() if net == "bert_tiny" else NETS[net]
    print("base_mb", resident_mb())
    torch.manual_seed(1)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **FUSED)
    data, labels = batch()
    for _ in range(steps):
        loss = loss_of(model(data), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print("peak_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


main()
