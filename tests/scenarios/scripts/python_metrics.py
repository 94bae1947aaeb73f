"""A confusion matrix is counted in Python after every step."""
# expects: side_work

import torch
from laps import endless, fit, options
from torch import nn


class Confusion:
    def __init__(self, classes):
        self.counts = [[0] * classes for _ in range(classes)]

    def update(self, predicted, true):
        for p, t in zip(predicted, true, strict=True):  # <- cause
            self.counts[int(t)][int(p)] += 1  # <- cause

    def update_at_once(self, predicted, true):
        classes = len(self.counts)
        self.table = torch.bincount(true * classes + predicted, minlength=classes**2)


def main():
    args = options()
    inputs, labels = torch.randn(50_000, 64), torch.randint(8, (50_000,))
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    metric = Confusion(8)
    latest = []

    def loss_of(x, y):
        out = model(x)
        latest[:] = out.argmax(1), y
        return nn.functional.cross_entropy(out, y)

    def count(step):
        (metric.update_at_once if args.fixed else metric.update)(*latest)

    batches = list(zip(inputs.split(512), labels.split(512), strict=True))
    fit(args, optimizer, endless(batches), loss_of, count)


main()
