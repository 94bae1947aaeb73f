"""Two workers wait for a remote store; the processors have nothing to do."""
# expects: input_bound/workers_saturated

import time

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, Dataset


def download(key):
    time.sleep(0.012)  # <- cause
    return torch.full((256,), float(key % 7))


class Remote(Dataset):
    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return download(self.keys[index]), self.keys[index] % 7


class Trainer:
    def __init__(self, args):
        self.watch = Laps(args.seconds)
        self.loader = DataLoader(Remote(range(1_000_000)), 16, num_workers=8 if args.fixed else 2)
        self.model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 7))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, x, y):
        loss = sum(self.criterion(self.model(x), y) for _ in range(12))
        self.watch.lap("forward")
        self.optimizer.zero_grad()
        loss.backward()
        self.watch.lap("backward")
        self.optimizer.step()
        self.watch.lap("optimizer")

    def fit(self):
        for x, y in self.loader:
            self.watch.lap("data")
            self.training_step(x, y)
            if not self.watch.step():
                break
        self.watch.tell()


if __name__ == "__main__":
    Trainer(options()).fit()
