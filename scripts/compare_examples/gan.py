"""examples/gan.lua in PyTorch. usage: gan.py DATA EPOCHS"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

from common import loader_of, mnist


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(64, 64 * 7 * 7)
        self.norm1, self.norm2 = nn.BatchNorm2d(64), nn.BatchNorm2d(32)
        self.up1 = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1)

    def forward(self, z):
        x = F.relu(self.norm1(self.start(z).view(-1, 64, 7, 7)))
        return self.up2(F.relu(self.norm2(self.up1(x)))).tanh()


def loss_of(logits, real):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


folder, epochs = sys.argv[1], int(sys.argv[2])
torch.manual_seed(1)
images = mnist(folder, True, 0.5, 0.5)[0][:10000]
generator = Generator()
discriminator = nn.Sequential(
    nn.Conv2d(1, 32, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
    nn.Conv2d(32, 64, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
    nn.Flatten(), nn.Linear(64 * 7 * 7, 1))
g_optimizer, d_optimizer = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999))
                            for m in (generator, discriminator))
for _ in range(epochs):
    for real, in loader_of([images], 64, shuffle=True, drop_last=True):
        fake = generator(torch.randn(real.size(0), 64))
        d_loss = loss_of(discriminator(real), True) + loss_of(discriminator(fake.detach()), False)
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()
        g_loss = loss_of(discriminator(fake), True)
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
print(f"Loss: {d_loss:.4f} discriminator, {g_loss:.4f} generator")
