"""A thread that computes statistics in Python takes the GIL from the training thread."""
# expects: gil_contention

import threading

import torch
from laps import Laps, options
from torch import nn


class Statistics(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True, name="statistics")
        self.stopping = threading.Event()
        self.total = 0.0

    def run(self):
        while not self.stopping.is_set():
            for n in range(200_000):
                self.total += (n % 7) * 0.5  # <- cause


def main():
    args = options()
    torch.set_num_threads(1)
    statistics = Statistics()
    if not args.fixed:
        statistics.start()
    layers = [layer for _ in range(30) for layer in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 32), torch.randn(64, 1)
    watch = Laps(args.seconds)
    while True:
        loss = nn.functional.mse_loss(model(x), y)
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()
    if not args.fixed:
        statistics.stopping.set()
        statistics.join()


main()
