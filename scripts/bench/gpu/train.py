"""nets.lua and train.lua in PyTorch, on the card, or with `smoke` and without one on the CPU.

usage: train.py NET BATCH DTYPE MODE [smoke]      MODE: eager, compile (torch.compile) or graph (mode="reduce-overhead")
With WARM=1 a step of each kind is made and nothing is printed: the output of torch.compile stays in its cache on disk.
"""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


class BasicNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


class ResidualBlock(nn.Module):
    def __init__(self, start, end, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(start, end, 3, stride, 1, bias=False), nn.BatchNorm2d(end)
        self.conv2, self.bn2 = nn.Conv2d(end, end, 3, 1, 1, bias=False), nn.BatchNorm2d(end)
        self.shortcut = nn.Sequential()
        if stride != 1 or start != end:
            self.shortcut = nn.Sequential(nn.Conv2d(start, end, 1, stride, bias=False), nn.BatchNorm2d(end))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in
                   self.c_attn(self.ln_1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, tokens, layers, width, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.h = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[:ids.size(1)]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def fused(groups, **options):
    return torch.optim.AdamW(groups, fused=device == "cuda", **options)


def mnist_cnn(batch, smoke):
    model = BasicNet().to(device)
    images, labels = torch.randn(batch, 1, 28, 28, device=device), torch.randint(0, 10, (batch,), device=device)
    return model, fused(model.parameters(), lr=1e-3), lambda m: F.nll_loss(m(images), labels), batch


def resnet18(batch, smoke):
    width = start = 4 if smoke else 64
    stages = []
    for stage in range(4):
        end = width * 2**stage
        stages += [ResidualBlock(start, end, 1 if stage == 0 else 2), ResidualBlock(end, end, 1)]
        start = end
    model = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), *stages,
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(start, 10)).to(device)
    images, labels = torch.randn(batch, 3, 32, 32, device=device), torch.randint(0, 10, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True,
                                fused=device == "cuda")
    return model, optimizer, lambda m: F.cross_entropy(m(images), labels), batch


def gpt2(batch, smoke):
    vocabulary, tokens, layers, width, heads = (64, 16, 2, 32, 2) if smoke else (50304, 1024, 12, 768, 12)
    model = Gpt(vocabulary, tokens, layers, width, heads).to(device)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    ids = torch.randint(0, vocabulary, (batch, tokens), device=device)

    def loss(m):
        return F.cross_entropy(m(ids)[:, :-1].reshape(-1, vocabulary), ids[:, 1:].reshape(-1))

    return model, fused(groups, lr=6e-4, betas=(0.9, 0.95)), loss, batch * tokens


def minilm(batch, smoke):
    from transformers import BertConfig, BertForSequenceClassification
    tokens, width, vocabulary = (12, 24, 50) if smoke else (128, 384, 30522)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=1 if smoke else 6, num_attention_heads=12,
        intermediate_size=4 * width, num_labels=2)).to(device)
    ids = torch.randint(0, vocabulary, (batch, tokens), device=device)
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    for row in range(batch):
        mask[row, int(tokens * (1 / 3 + 2 / 3 * ((row * 7) % batch + 1) / batch)):] = 0
    mask, labels = mask.to(device), torch.randint(0, 2, (batch,), device=device)
    optimizer = fused(model.parameters(), lr=5e-5, weight_decay=0.0)
    return model, optimizer, lambda m: m(input_ids=ids, attention_mask=mask, labels=labels).loss, batch * tokens


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def main():
    net, batch, dtype, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    smoke, warm = sys.argv[5:] == ["smoke"], os.environ.get("WARM") == "1"
    torch.manual_seed(1)
    nets = {"mnist_cnn": mnist_cnn, "resnet18": resnet18, "gpt2": gpt2, "minilm": minilm}
    model, optimizer, loss_of, items = nets[net](2 if smoke else batch, smoke)
    model.train()
    if mode == "compile":
        model = torch.compile(model)
    elif mode == "graph":
        model = torch.compile(model, mode="reduce-overhead")

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().clone() if mode == "graph" else loss.detach()

    def timed(count):
        wait()
        begin = time.perf_counter()
        for _ in range(count):
            loss = step()
        wait()
        return (time.perf_counter() - begin) / count, loss

    if warm:
        timed(1)
        return
    block_seconds, blocks = (0, 1) if smoke else (0.4, 7)
    timed(3 if smoke else 10)
    count = max(1, int(block_seconds / timed(1 if smoke else 5)[0]) + 1)
    results = [timed(count) for _ in range(blocks)]
    times = sorted(spent for spent, _ in results)
    typical = times[blocks // 2]
    print("step_ms", 1e3 * typical)
    print("spread", (times[-1] - times[0]) / typical)
    print("items_per_s", items / typical)
    print("peak_mb", torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0)
    print("loss", results[-1][1].item())


main()
