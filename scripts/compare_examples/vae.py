"""examples/vae.lua in PyTorch. usage: vae.py DATA EPOCHS"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

from common import loader_of, mnist


class Vae(nn.Module):
    def __init__(self, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(256, latent), nn.Linear(256, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 256), nn.ReLU(), nn.Linear(256, 784))

    def forward(self, images):
        h = self.encoder(images)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * (log_variance * 0.5).exp()
        return self.decoder(z), mean, log_variance


def loss_of(images, logits, mean, log_variance):
    reconstruction = F.binary_cross_entropy_with_logits(logits, images.flatten(1), reduction="sum")
    divergence = (log_variance.exp() + mean * mean - 1 - log_variance).sum() * 0.5
    return (reconstruction + divergence) / images.size(0)


folder, epochs = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
train, test = mnist(folder, True, 0, 1), mnist(folder, False, 0, 1)
model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(epochs):
    for images, _ in loader_of(train, 64, shuffle=True):
        optimizer.zero_grad()
        loss_of(images, *model(images)).backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    losses = [loss_of(images, *model(images)).item() for images, _ in loader_of(test, 100)]
print(f"Loss: {sum(losses) / len(losses):.2f}")
