"""pytorch_optimizer's Lion in a plain loop: after every step a smoothed loss curve is fitted anew in plain Python."""
# expects: side_work
# package: pytorch_optimizer

import torch
from planted import PLANTED, Clock
from pytorch_optimizer import Lion
from torch import nn


class Curve:
    """Exponential smoothing of the last losses, by the factor that predicts the next one best."""

    def __init__(self):
        self.losses = [1.0] * 300

    def add(self, loss):
        self.losses = [*self.losses[-299:], loss]
        return min(self.error(0.02 * step) for step in range(1, 50))

    def error(self, factor):
        level, total = self.losses[0], 0.0
        for loss in self.losses:
            total += (loss - level) ** 2  # <- cause
            level += factor * (loss - level)  # <- cause
        return total


def main():
    torch.set_num_threads(1)
    clock = Clock()
    curve = Curve()
    model = nn.Sequential(
        nn.Conv1d(4, 24, 5), nn.GELU(), nn.Conv1d(24, 24, 5), nn.GELU(), nn.Flatten(), nn.Linear(1344, 5)
    )
    optimizer = Lion(model.parameters(), lr=1e-5)
    x, y = torch.randn(512, 4, 64), torch.randint(0, 5, (512,))
    while True:
        chosen = torch.randint(0, 512, (24,))
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if PLANTED:
            curve.add(loss.item())
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
