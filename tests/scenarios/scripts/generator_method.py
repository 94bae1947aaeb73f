"""The trainer's own generator makes batches row by row."""
# expects: input_bound/hand_rolled_loader

import torch
from laps import Laps, options
from torch import nn


class Trainer:
    def __init__(self, args):
        self.fixed = args.fixed
        self.features = torch.randn(5000, 24)
        self.labels = (self.features.sum(1) > 0).long()
        self.net = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 2))
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.watch = Laps(args.seconds)

    def batches(self, size=256):
        while True:
            chosen = torch.randint(len(self.labels), (size,))
            if self.fixed:
                yield self.features[chosen], self.labels[chosen]
                continue
            rows = [self.normalised(i) for i in chosen.tolist()]
            yield torch.stack(rows), self.labels[chosen]

    def normalised(self, index):
        row = self.features[index]
        return (row - row.mean()) / row.std()  # <- cause

    def train(self):
        for x, y in self.batches():
            self.watch.lap("data")
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.watch.lap("forward")
            self.sgd.zero_grad()
            loss.backward()
            self.watch.lap("backward")
            self.sgd.step()
            self.watch.lap("optimizer")
            if not self.watch.step():
                break
        self.watch.report()


Trainer(options()).train()
