"""The nets of train.py: name -> (make, batch size, batch, loss of output and labels)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import char_gpt
from char_gpt import Gpt


class BasicNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)


class Block(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18(channels, dtype):
    """ResNet-18 with the stem for small images (3x3, no pooling)."""
    layers, inputs = [nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        layers += [Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)).to(dtype)


def images(count, channels, size, dtype=torch.float32):
    return lambda: (torch.randn(count, channels, size, size, dtype=dtype), torch.randint(0, 10, (count,)))


class Lstm(nn.Module):
    """A language model of characters."""

    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(65, 64), nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 65)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0]).flatten(0, 1)


def gpt_batch(count, tokens):
    def batch():
        ids = torch.randint(0, 65, (count, tokens))
        return ids, ids

    return batch


def gpt():
    """The GPT of 10.8 million parameters."""
    char_gpt.LAYERS, char_gpt.HEADS, char_gpt.WIDTH, char_gpt.BLOCK = 6, 6, 384, 256
    return char_gpt.Gpt(65)


def char_gpt_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


NETS = {
    "tiny": (lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)), 16,
             lambda: (torch.randn(16, 16), torch.randn(16, 1)), F.mse_loss),
    "lstm": (Lstm, 16, lambda: (torch.randint(0, 65, (16, 32)), torch.randint(0, 65, (16 * 32,))), F.cross_entropy),
    "char_gpt": (lambda: Gpt(65), 16, gpt_batch(16, 128), char_gpt_loss),
    "gpt": (gpt, 12, gpt_batch(12, 256), char_gpt_loss),
    "mnist_cnn": (BasicNet, 64, images(64, 1, 28), F.nll_loss),
    "mlp": (Mlp, 64, images(64, 1, 28), F.nll_loss),
    "resnet18_28": (lambda: resnet18(1, torch.float32), 16, images(16, 1, 28), F.cross_entropy),
    "resnet18_32": (lambda: resnet18(3, torch.float32), 16, images(16, 3, 32), F.cross_entropy),
    "resnet18_28_float64": (lambda: resnet18(1, torch.float64), 16, images(16, 1, 28, torch.float64),
                            F.cross_entropy),
}
