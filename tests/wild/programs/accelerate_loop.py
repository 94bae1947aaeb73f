"""An own loop with accelerate: a confusion matrix is updated sample by sample after each step."""
# expects: side_work
# package: accelerate

import torch
from accelerate import Accelerator
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10


def add_to(matrix, guesses, labels):
    for _ in range(12):
        for guess, label in zip(guesses, labels, strict=True):  # <- cause
            matrix[label.item()][guess.item()] += 1  # <- cause


def main():
    clock = Clock()
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(20_000, 64), torch.randint(0, CLASSES, (20_000,)))
    net = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, CLASSES))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data, batch_size=128, shuffle=True))
    matrix = [[0] * CLASSES for _ in range(CLASSES)]
    while True:
        for x, y in loader:
            scores = net(x)
            loss = nn.functional.cross_entropy(scores, y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if PLANTED:
                add_to(matrix, scores.argmax(1), y)
            if not clock.step():
                return clock.report()


if __name__ == "__main__":
    main()
