"""kernel_rates.lua in PyTorch, eager: "NAME_us TIME" of each, and the card's own measure.

usage: kernel_rates.py [smoke]
Its name is none that a package imports: transformers looks for one called kernels.
"""
import sys
import time

import torch
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
smoke = sys.argv[1:] == ["smoke"]
BLOCK_SECONDS, BLOCKS = (0, 1) if smoke else (0.03, 5)


def small(size, tiny):
    return tiny if smoke else size


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def time_of(fn):
    def timed(count):
        wait()
        begin = time.perf_counter()
        for _ in range(count):
            fn()
        wait()
        return (time.perf_counter() - begin) / count

    timed(1 if smoke else 5)
    count = max(1, int(BLOCK_SECONDS / timed(1 if smoke else 5)) + 1)
    return 1e6 * sorted(timed(count) for _ in range(BLOCKS))[BLOCKS // 2]


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=device).to(dtype)


def print_rate(name, fn):
    print(name + "_us", time_of(fn))


def both(x, fn):
    x.requires_grad_()

    def call():
        y = fn(x)
        y.backward(torch.ones_like(y) if y.dim() == 0 else gradient(y))
        x.grad = None

    kept = {}

    def gradient(y):
        if "g" not in kept:
            kept["g"] = torch.ones_like(y)
        return kept["g"]

    return call


def measure():
    n, side = small(2**28, 1000), small(8192, 16)
    source, target = random(n), torch.empty(n, device=device)
    print("copy_gbs", 8 * n / time_of(lambda: target.copy_(source)) / 1e3)
    left, right = random(side, side, dtype=torch.bfloat16), random(side, side, dtype=torch.bfloat16)
    print("matrix_tflops", 2 * side**3 / time_of(lambda: left @ right) / 1e6)


def memory_bound(dtype, short):
    count, rows, width = small(2**27, 1000), small(65536, 8), small(768, 24)
    x, y = random(count, dtype=dtype), random(count, dtype=dtype)
    print_rate("add_" + short, lambda: x + y)
    print_rate("mul_scalar_" + short, lambda: x * 1.5)
    print_rate("gelu_" + short, lambda: F.gelu(x))
    print_rate("sum_" + short, lambda: x.sum())
    print_rate("dropout_" + short, lambda: F.dropout(x, 0.1))
    wide = random(rows, width, dtype=dtype)
    weight, bias = random(width, dtype=dtype), random(width, dtype=dtype)
    print_rate("layer_norm_" + short, lambda: F.layer_norm(wide, (width,), weight, bias))
    print_rate("softmax_" + short, lambda: wide.softmax(1))
    print_rate("transpose_" + short, lambda: wide.t().contiguous())
    print_rate("sum_rows_" + short, lambda: wide.sum(1))
    print_rate("sum_columns_" + short, lambda: wide.sum(0))
    print_rate("layer_norm_both_" + short, both(wide, lambda t: F.layer_norm(t, (width,), weight, bias)))


def losses():
    rows, classes, width = small(8192, 8), small(50304, 40), small(768, 24)
    scores, labels = random(rows, classes, dtype=torch.bfloat16), torch.randint(0, classes, (rows,), device=device)
    print_rate("cross_entropy_both_bf16", both(scores, lambda t: F.cross_entropy(t, labels)))
    ids = torch.randint(0, classes, (small(16384, 30),), device=device)
    print_rate("embedding_both_f32", both(random(classes, width), lambda t: F.embedding(ids, t)))


def adamw():
    sizes = [50304 * 768, 1024 * 768] + 12 * [768 * 2304, 768 * 768, 2 * 768 * 3072, 2304, 3072, 768]
    parameters = [torch.zeros(small(size, i + 1), device=device, requires_grad=True) for i, size in enumerate(sizes)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=device == "cuda")
    print_rate("adamw_124m", optimizer.step)


def products():
    for size in (1024, 4096):
        edge = small(size, 16)
        a, b = random(edge, edge, dtype=torch.bfloat16), random(edge, edge, dtype=torch.bfloat16)
        print_rate(f"matmul_{size}_bf16", lambda: a @ b)
    rows, width = small(16384, 16), small(768, 16)
    x, weight = random(rows, width, dtype=torch.bfloat16), random(4 * width, width, dtype=torch.bfloat16)
    bias = random(4 * width, dtype=torch.bfloat16)
    print_rate("linear_bf16", lambda: F.linear(x, weight, bias))
    shape = (small(16, 1), small(12, 2), small(1024, 20), 64)
    q, k, v = (random(*shape, dtype=torch.bfloat16) for _ in range(3))
    print_rate("attention_bf16", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    print_rate("attention_both_bf16", both(q, lambda t: F.scaled_dot_product_attention(t, k, v, is_causal=True)))


measure()
memory_bound(torch.float32, "f32")
memory_bound(torch.bfloat16, "bf16")
losses()
adamw()
products()
if device == "cuda":
    print("peak_mb", torch.cuda.max_memory_allocated() / 2**20)
