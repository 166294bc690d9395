"""PyTorch's side of ops.lua: microseconds of processor time of each expression of a file, one a line.

usage: ops.py SIZE FILE
"""
import sys
import time

import torch
import torch.nn.functional as F


def inputs(n):
    side = int(n ** 0.5)
    plane = max(4, int((n / 16) ** 0.5))
    x = torch.randn(n)
    return dict(
        x=x, y=torch.randn(n), u=torch.rand(n) * 1.98 - 0.99, p=torch.rand(n) * 5 + 0.01, q=torch.rand(n) * 0.98 + 0.01,
        i=torch.randint(0, n, (n,)), j=torch.randint(1, 100, (n,)), c=x > 0, d=x < 0.5, m=torch.randn(side, side),
        m2=torch.randn(side, side), row=torch.randn(side), columns=torch.randint(0, side, (side, side)),
        img=torch.randn(1, 16, plane, plane), grid=torch.rand(1, plane, plane, 2) * 2 - 1,
        seq=torch.randn(1, 16, plane * plane), vol=torch.randn(1, 16, 4, plane // 2, plane // 2),
        points=torch.randn(side, 16), points2=torch.randn(side, 16), classes=torch.randint(0, side, (side,)),
        sorted=torch.randn(n).sort()[0], tokens=torch.randint(0, side, (side,)), channels=torch.rand(16) + 0.5, n=n,
        side=side, special=torch.special,
        cat_pair=lambda a, b: torch.cat((a, b), 0), stack_pair=lambda a, b: torch.stack((a, b), 0),
        baddbmm_one=lambda a, b: torch.bmm(a.unsqueeze(0), b.unsqueeze(0)))


class Names(dict):
    def __missing__(self, name):
        self[name] = getattr(F, name, None) or getattr(torch, name)
        return self[name]




def measure(text, names):
    code = compile(text.replace(".shape()", ".shape"), text, "eval")

    def run(rounds):
        begin = time.process_time()
        for _ in range(rounds):
            eval(code, names)
        return (time.process_time() - begin) / rounds

    run(1)
    rounds = max(1, min(200, int(0.005 / (run(1) + 1e-7))))
    return min(run(rounds) for _ in range(3)) * 1e6


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = Names(inputs(int(sys.argv[1])))
    with torch.no_grad(), open(sys.argv[2]) as rows:
        for row in rows:
            try:
                print("%.2f" % measure(row.strip(), names), flush=True)
            except Exception as problem:
                print(str(problem).splitlines()[0], flush=True)


main()
