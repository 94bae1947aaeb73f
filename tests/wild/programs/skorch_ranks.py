"""skorch's NeuralNetRegressor: the criterion ranks predictions with NumPy, row against row."""
# expects: compute_bound_cpu/python
# package: skorch

import numpy as np
import torch
from planted import PLANTED, Clock
from skorch import NeuralNetRegressor
from skorch.callbacks import Callback
from torch import nn


class Ranked(nn.Module):
    def forward(self, predicted, wanted):
        weights = ranked(predicted.detach().numpy(), wanted.numpy()) if PLANTED else torch.ones(len(wanted))
        return (weights * (predicted - wanted).square().mean(1)).mean()


def ranked(predicted, wanted):
    weights = np.empty(len(wanted), np.float32)
    for number, row in enumerate(wanted):
        weights[number] = 1.0
        for power in (1, 2, 4):
            apart = np.sort((np.abs(predicted - row) ** power).sum(1))  # <- cause
            weights[number] /= 1.0 + np.searchsorted(apart, apart.mean())
    return torch.from_numpy(weights)


class Stop(Callback):
    def __init__(self, clock):
        self.clock = clock

    def on_batch_end(self, net, training=False, **_):
        if not self.clock.step():
            raise KeyboardInterrupt


def main():
    clock = Clock()
    module = nn.Sequential(nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 48))
    net = NeuralNetRegressor(
        module, criterion=Ranked, max_epochs=1000, batch_size=256, train_split=None, verbose=0, lr=1e-4,
        callbacks=[Stop(clock)],
    )  # fmt: skip
    net.fit(torch.randn(5120, 64), torch.randn(5120, 48))
    clock.report()


if __name__ == "__main__":
    main()
