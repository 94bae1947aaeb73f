"""Predictions are fetched for NumPy in every step, to count hits by class; fixed: counted on the GPU."""
# expects: sync_point

import numpy as np
import torch
from common import DEVICE, StepClock, main, sized
from torch import nn

CLASSES = 50


class CountsOnTheCpu:
    def __init__(self):
        self.hits, self.seen = np.zeros(CLASSES), np.zeros(CLASSES)

    def add(self, logits, labels):
        predicted, wanted = logits.argmax(1).cpu().numpy(), np.array(labels.tolist())
        np.add.at(self.seen, wanted, 1)
        np.add.at(self.hits, wanted[predicted == wanted], 1)


class CountsOnTheGpu:
    def __init__(self):
        self.hits, self.seen = torch.zeros(CLASSES, device=DEVICE), torch.zeros(CLASSES, device=DEVICE)

    def add(self, logits, labels):
        self.seen.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float32))
        self.hits.index_add_(0, labels, (logits.argmax(1) == labels).float())


def train(seconds, fixed):
    torch.manual_seed(0)
    width, batch = sized(1024, 16), sized(4096, 8)
    layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.randn(batch, width, device=DEVICE), torch.randint(CLASSES, (batch,), device=DEVICE)
    clock, counts = StepClock(seconds), CountsOnTheGpu() if fixed else CountsOnTheCpu()
    while clock.goes_on():
        optimizer.zero_grad()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        counts.add(logits.detach(), y)
    return clock


if __name__ == "__main__":
    main(train)
