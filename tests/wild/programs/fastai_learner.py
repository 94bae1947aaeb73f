"""fastai's Learner: a callback counts dead units of each layer after every step."""
# expects: side_work
# package: fastai
# It brings torchvision, which must be of the same build as torch: the wild extra leaves it out.

import torch
from fastai.callback.core import Callback, CancelFitException
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner, Recorder, defaults
from planted import PLANTED, Clock
from torch import nn


class Rows:
    def __init__(self, count):
        self.x, self.y = torch.randn(count, 32), torch.randint(0, 4, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class DeadUnits(Callback):
    def __init__(self):
        self.seen = {}

    def after_step(self):
        if PLANTED:
            self.count()

    def count(self):
        for name, weight in self.learn.model.named_parameters():
            if weight.ndim == 2:
                self.seen[name] = sum(1 for row in weight.detach() if float(row.abs().max()) < 1e-3)  # <- cause


class Count(Callback):
    order = 90

    def __init__(self, clock):
        self.clock = clock

    def after_batch(self):
        if self.training and not self.clock.step():
            raise CancelFitException


def main():
    torch.set_num_threads(1)
    clock = Clock()
    layers = [layer for _ in range(3) for layer in (nn.Linear(500, 500), nn.ReLU())]
    model = nn.Sequential(nn.Linear(32, 500), nn.ReLU(), *layers, nn.Linear(500, 4))
    loaders = DataLoaders(DataLoader(Rows(6400), bs=64, shuffle=True), DataLoader(Rows(64), bs=64))
    defaults.callbacks = [callback for callback in defaults.callbacks if callback is not Recorder]  # which prints
    Learner(loaders, model, loss_func=nn.CrossEntropyLoss(), cbs=[DeadUnits(), Count(clock)]).fit(1000, lr=1e-3)
    clock.tell()


if __name__ == "__main__":
    main()
