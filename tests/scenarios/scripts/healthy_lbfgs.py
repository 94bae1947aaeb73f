"""LBFGS: forward and backward inside the optimizer's step."""
# healthy

import time

import torch
from laps import Laps, options
from torch import nn


def main():
    args = options()
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=5, history_size=4)
    x = torch.randn(1024, 64)
    y = x.square().sum(1, keepdim=True).sin()
    watch = Laps(args.seconds)

    def closure():
        optimizer.zero_grad()
        begin = time.perf_counter()
        loss = nn.functional.mse_loss(model(x), y)
        middle = time.perf_counter()
        loss.backward()
        watch.spent("forward", middle - begin)
        watch.spent("backward", time.perf_counter() - middle)
        return loss

    while True:
        optimizer.step(closure)
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()


main()
