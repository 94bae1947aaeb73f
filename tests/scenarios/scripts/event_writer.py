"""Histograms of all weights are written as events after every step; batches by hand."""
# expects: side_work

import json
import os
import tempfile

import torch
from laps import fit, options
from torch import nn


class EventWriter:
    def __init__(self, folder):
        self.file = open(os.path.join(folder, "events.jsonl"), "w")  # noqa: SIM115

    def add_histogram(self, name, values, step):
        counts, edges = torch.histogram(values.detach().flatten(), bins=64)  # <- cause
        event = {"step": step, "name": name, "counts": counts.tolist(), "edges": edges.tolist()}
        self.file.write(json.dumps(event) + "\n")  # <- cause
        self.file.flush()


args = options()
x, y = torch.randn(4096, 64), torch.randn(4096, 8)
layers = [nn.Linear(64, 128), nn.ReLU()]
for _ in range(6):
    layers += [nn.Linear(128, 128), nn.ReLU()]
net = nn.Sequential(*layers, nn.Linear(128, 8))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-4)
writer = EventWriter(tempfile.mkdtemp())


def batches():
    while True:
        chosen = torch.randint(len(x), (256,))
        yield x[chosen], y[chosen]


def write(step):
    if not args.fixed or step % 200 == 0:
        for name, parameter in net.named_parameters():
            writer.add_histogram(name, parameter, step)


fit(args, optimizer, batches(), lambda x, y: nn.functional.l1_loss(net(x), y), write)
