"""examples/lstm.lua in PyTorch. usage: lstm.py EPOCHS"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

from common import loader_of

LENGTH, AHEAD = 60, 20


def waves(count, length):
    time = torch.arange(length).float().view(1, -1)
    speed, phase = torch.rand(count, 2) * 0.3 + 0.1, torch.rand(count, 2) * 6.283
    y = (time * speed[:, :1] + phase[:, :1]).sin() + (time * speed[:, 1:] + phase[:, 1:]).sin() * 0.5
    return (y + torch.randn_like(y) * 0.05).unsqueeze(-1)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 48, num_layers=2, batch_first=True)
        self.head = nn.Linear(48, 1)

    def forward(self, x, state=None):
        h, after = self.lstm(x, state)
        return self.head(h), after


torch.manual_seed(1)
train, test = waves(2000, LENGTH), waves(200, LENGTH + AHEAD)
model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(int(sys.argv[1])):
    for wave, in loader_of([train], 32, shuffle=True):
        F.mse_loss(model(wave[:, :-1])[0], wave[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        optimizer.zero_grad()
with torch.no_grad():
    out, state = model(test[:, :LENGTH])
    values = [out[:, -1:]]
    while len(values) < AHEAD:
        value, state = model(values[-1], state)
        values.append(value)
truth = test[:, LENGTH:]
print(f"Error: {F.mse_loss(torch.cat(values, 1), truth):.4f} (no forecast: {truth.square().mean():.4f})")
