"""examples/char_gpt.lua in PyTorch. usage: char_gpt.py TEXT STEPS"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONTEXT, WIDTH, HEADS, LAYERS = 64, 128, 4, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, time, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, time, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.token, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, x):
        h = self.token(x) + self.place(torch.arange(x.size(1)))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Windows(Dataset):
    def __len__(self):
        return codes.size(0) - CONTEXT

    def __getitem__(self, i):
        return codes[i:i + CONTEXT], codes[i + 1:i + 1 + CONTEXT]


steps = int(sys.argv[2])
torch.manual_seed(1)
with open(sys.argv[1], "rb") as file:
    content = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
characters, codes = content.unique(return_inverse=True)
model = Gpt(len(characters))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
losses = []
for inputs, targets in DataLoader(Windows(), batch_size=16, shuffle=True):
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    if len(losses) == steps:
        break
recent = losses[-20:]
print(f"Loss: {sum(recent) / len(recent):.4f}")
