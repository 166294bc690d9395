"""Shared by the PyTorch programs of the examples: the data of their loaders, and epochs in PyTorch's own order."""

import gzip
import os

import torch
from torch.utils.data import DataLoader, TensorDataset


def idx(folder, name):
    with gzip.open(os.path.join(folder, name + ".gz")) as file:
        content = bytearray(file.read())
    dims = content[3]
    shape = [int.from_bytes(content[4 + 4 * d:8 + 4 * d], "big") for d in range(dims)]
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * dims).reshape(shape)


def mnist(folder, train, mean=0.1307, std=0.3081):
    """(images, labels): float32 (n, 1, 28, 28), scaled to 0..1 and then by mean and std, and int64."""
    name = "train" if train else "t10k"
    images = idx(folder, f"{name}-images-idx3-ubyte").unsqueeze(1).float() / 255
    return (images - mean) / std, idx(folder, f"{name}-labels-idx1-ubyte").long()


def loader_of(tensors, batch_size, shuffle=False, drop_last=False):
    return DataLoader(TensorDataset(*tensors), batch_size=batch_size, shuffle=shuffle, drop_last=drop_last)
