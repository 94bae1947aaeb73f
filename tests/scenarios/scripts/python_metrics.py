"""A confusion matrix is counted in Python after every step."""
# expects: side_work

import torch
from laps import Laps, options
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
    watch = Laps(args.seconds)
    going = True
    while going:
        for x, y in zip(inputs.split(512), labels.split(512), strict=True):
            watch.lap("data")
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            watch.lap("forward")
            optimizer.zero_grad()
            loss.backward()
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            if args.fixed:
                metric.update_at_once(out.argmax(1), y)
            else:
                metric.update(out.argmax(1), y)
            watch.lap("other")
            going = watch.step()
            if not going:
                break
    watch.tell()


main()
