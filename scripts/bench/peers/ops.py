"""PyTorch's side of ops.lua: microseconds of each expression of a file, one a line.

usage: ops.py SIZE FILE THREADS DTYPE
"""
import sys
import time

import torch
import torch.nn.functional as F


def inputs(n, dtype):
    side = int(n ** 0.5)
    plane = max(4, int((n / 16) ** 0.5))
    scale = 1 if dtype.is_floating_point else 10

    def randn(*shape):
        return (torch.randn(shape) * scale).to(dtype)

    def rand(count, factor, offset):
        return ((torch.rand(count) * factor + offset) * scale).to(dtype)

    def leaf(*shape):
        return randn(*shape).requires_grad_()

    x = randn(n)
    return dict(
        g_x=leaf(n), g_m=leaf(side, side), g_row=leaf(side), g_img=leaf(1, 16, plane, plane),
        g_seq=leaf(1, 16, plane * plane), g_vol=leaf(1, 16, 4, plane // 2, plane // 2), g_channels=leaf(16),
        x=x, y=randn(n), u=rand(n, 1.98, -0.99), p=rand(n, 5, 0.1), q=rand(n, 0.98, 0.01),
        i=torch.randint(0, n, (n,)), j=torch.randint(1, 100, (n,)), c=x > 0, d=x < 0.5, m=randn(side, side),
        m2=randn(side, side), row=randn(side), columns=torch.randint(0, side, (side, side)),
        img=randn(1, 16, plane, plane), grid=(torch.rand(1, plane, plane, 2) * 2 - 1).to(dtype),
        seq=randn(1, 16, plane * plane), vol=randn(1, 16, 4, plane // 2, plane // 2),
        points=randn(side, 16), points2=randn(side, 16), classes=torch.randint(0, side, (side,)),
        sorted=randn(n).sort()[0], tokens=torch.randint(0, side, (side,)), channels=rand(16, 1, 0.5), n=n, side=side,
        special=torch.special,
        cat_pair=lambda a, b: torch.cat((a, b), 0), stack_pair=lambda a, b: torch.stack((a, b), 0),
        baddbmm_one=lambda a, b: torch.bmm(a.unsqueeze(0), b.unsqueeze(0)))


class Names(dict):
    def __init__(self, given):
        super().__init__(given)
        leaves = [value for name, value in given.items() if name.startswith("g_")]

        def backward(y):
            y.backward(torch.ones_like(y))
            for leaf in leaves:
                leaf.grad = None

        self["backward"] = backward

    def __missing__(self, name):
        self[name] = getattr(F, name, None) or getattr(torch, name)
        return self[name]


def measure(text, names, clock):
    code = compile(text.replace(".shape()", ".shape"), text, "eval")

    def run(rounds):
        begin = clock()
        for _ in range(rounds):
            eval(code, names)
        return (clock() - begin) / rounds

    run(1)
    rounds = max(1, min(200, int(0.005 / (run(1) + 1e-7))))
    return min(run(rounds) for _ in range(3)) * 1e6


def main():
    threads = int(sys.argv[3])
    clock = time.perf_counter if threads > 1 else time.process_time
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    names = Names(inputs(int(sys.argv[1]), getattr(torch, sys.argv[4])))
    with torch.no_grad(), open(sys.argv[2]) as rows:
        for row in rows:
            try:
                with torch.set_grad_enabled(row.startswith("backward")):
                    print("%.2f" % measure(row.strip(), names, clock), flush=True)
            except Exception as problem:
                print(str(problem).splitlines()[0], flush=True)


main()
