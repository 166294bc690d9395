"""examples/text_classifier.lua in PyTorch. usage: text_classifier.py TRAIN TEST EPOCHS"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

WIDTH, LENGTH = 64, 48


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").rsplit("\t", 1) for line in file]
    return [(row[0], int(row[1])) for row in rows if len(row) == 2 and row[1] in "01"]


class Classifier(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.word, self.place = nn.Embedding(words, WIDTH, padding_idx=0), nn.Embedding(LENGTH, WIDTH)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x):
        padding = x == 0
        h = self.encoder(self.word(x) + self.place(torch.arange(x.size(1))), src_key_padding_mask=padding)
        there = (~padding).unsqueeze(-1).float()
        return self.head((h * there).sum(1) / there.sum(1))


def collate(samples):
    codes = [torch.tensor([vocabulary.get(word, 1) for word in sentence.split()][:LENGTH])
             for sentence, _ in samples]
    return nn.utils.rnn.pad_sequence(codes, batch_first=True), torch.tensor([label for _, label in samples])


torch.manual_seed(1)
torch.backends.mha.set_fastpath_enabled(False)
train, test = read(sys.argv[1]), read(sys.argv[2])
vocabulary = {}
for sentence, _ in train:
    for word in sentence.split():
        vocabulary.setdefault(word, len(vocabulary) + 2)
model = Classifier(len(vocabulary) + 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(int(sys.argv[3])):
    for sentences, labels in DataLoader(train, batch_size=64, shuffle=True, collate_fn=collate):
        F.cross_entropy(model(sentences), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
model.eval()
with torch.no_grad():
    correct = sum((model(sentences).argmax(1) == labels).sum().item()
                  for sentences, labels in DataLoader(test, batch_size=64, collate_fn=collate))
print(f"Accuracy: {100 * correct / len(test):.2f}")
