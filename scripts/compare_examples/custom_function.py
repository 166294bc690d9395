"""examples/custom_function.lua in PyTorch. usage: custom_function.py DATA EPOCHS"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

from common import loader_of, mnist


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class BinaryLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, Binarize.apply(self.weight), self.bias) / math.sqrt(self.in_features)


folder, epochs = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
train, test = mnist(folder, True), mnist(folder, False)
model = nn.Sequential(nn.Flatten(), BinaryLinear(784, 256), nn.BatchNorm1d(256), nn.Hardtanh(),
                      BinaryLinear(256, 256), nn.BatchNorm1d(256), nn.Hardtanh(), BinaryLinear(256, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(epochs):
    for images, labels in loader_of(train, 64, shuffle=True):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
model.eval()
with torch.no_grad():
    correct = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader_of(test, 200))
print(f"Accuracy: {100 * correct / len(test[0]):.2f}")
