"""examples/early_stopping.lua in PyTorch. usage: early_stopping.py DATA EPOCHS"""

import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

from common import loader_of, mnist

folder, epochs = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
images, labels = mnist(folder, True)
train, validation, test = (images[:2000], labels[:2000]), (images[2000:3000], labels[2000:3000]), mnist(folder, False)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)


def evaluate(tensors):
    loss, correct = 0, 0
    with torch.no_grad():
        for inputs, truth in loader_of(tensors, 64):
            outputs = model(inputs)
            loss += F.cross_entropy(outputs, truth, reduction="sum").item()
            correct += (outputs.argmax(1) == truth).sum().item()
    return loss / len(tensors[0]), correct / len(tensors[0])


best, waited = math.inf, 0
for _ in range(epochs):
    for inputs, truth in loader_of(train, 64, shuffle=True):
        F.cross_entropy(model(inputs), truth).backward()
        optimizer.step()
        optimizer.zero_grad()
    loss, _ = evaluate(validation)
    scheduler.step(loss)
    waited = 0 if loss < best else waited + 1
    if waited == 0:
        best, kept = loss, copy.deepcopy(model.state_dict())
    if waited == 3:
        break
model.load_state_dict(kept)
print(f"Accuracy: {100 * evaluate(test)[1]:.2f}")
