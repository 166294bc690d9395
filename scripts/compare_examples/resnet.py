"""examples/resnet.lua in PyTorch, alone or as DDP. usage: resnet.py DATA EPOCHS WIDTH SEED [RANK WORLD STORE]"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

folder, epochs, width, seed = sys.argv[1], *map(int, sys.argv[2:5])
rank, world = map(int, sys.argv[5:7]) if len(sys.argv) > 5 else (0, 1)
MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


class Images(Dataset):
    def __init__(self, names, augment):
        content = bytearray()
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                content += file.read()
        rows = torch.frombuffer(content, dtype=torch.uint8).view(-1, 3073)
        self.labels, self.images, self.augment = rows[:, 0].long(), rows[:, 1:].view(-1, 3, 32, 32), augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        if self.augment:
            y, x = torch.randint(0, 9, (2,)).tolist()
            image = F.pad(image, (4, 4, 4, 4))[:, y:y + 32, x:x + 32]
            image = image.flip(2) if torch.rand(1) < 0.5 else image
        return (image.float() / 255 - MEAN) / STD, self.labels[i]


class Block(nn.Module):
    def __init__(self, start, end, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(start, end, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(end)
        self.conv2 = nn.Conv2d(end, end, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(end)
        self.shortcut = nn.Sequential()
        if stride != 1 or start != end:
            self.shortcut = nn.Sequential(nn.Conv2d(start, end, 1, stride=stride, bias=False), nn.BatchNorm2d(end))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        stages, start = [], width
        for stage in range(4):
            end = width * 2 ** stage
            stages.append(nn.Sequential(Block(start, end, 1 if stage == 0 else 2), Block(end, end, 1)))
            start = end
        self.stages, self.fc = nn.Sequential(*stages), nn.Linear(start, 10)

    def forward(self, x):
        x = self.stages(F.relu(self.bn1(self.conv1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


torch.manual_seed(seed)
train, test = Images([f"data_batch_{i}.bin" for i in range(1, 6)], True), Images(["test_batch.bin"], False)
model = ResNet()
sampler = None
if world > 1:
    dist.init_process_group("gloo", init_method="file://" + sys.argv[7], rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(model)
    sampler = DistributedSampler(train, seed=seed)
    torch.manual_seed(seed + 1000 * rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
loader = DataLoader(train, batch_size=64, shuffle=sampler is None, sampler=sampler, drop_last=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, epochs=epochs, steps_per_epoch=len(loader))
for epoch in range(epochs):
    if sampler:
        sampler.set_epoch(epoch)
    for images, labels in loader:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
model.eval()
if rank == 0:
    network = model.module if world > 1 else model
    with torch.no_grad():
        correct = sum((network(images).argmax(1) == labels).sum().item()
                      for images, labels in DataLoader(test, batch_size=100))
    print(f"Accuracy: {100 * correct / len(test):.2f}")
