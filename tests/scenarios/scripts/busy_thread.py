"""A thread that computes statistics in Python takes the GIL from the training thread."""
# expects: gil_contention

import threading
from itertools import repeat

import torch
from laps import fit, options
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
    statistics = Statistics()
    if not args.fixed:
        statistics.start()
    layers = [layer for _ in range(30) for layer in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 32), torch.randn(64, 1)
    fit(args, optimizer, repeat((x, y)), lambda x, y: nn.functional.mse_loss(model(x), y))
    if not args.fixed:
        statistics.stopping.set()
        statistics.join()


main()
