"""A Trainer class, a DataLoader with one worker that keeps up, validation now and then, a log line every 50 steps."""
# healthy

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 256)
        self.labels = (self.rows[:, 0] > 0).long()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]


class Trainer:
    def __init__(self, args):
        self.train_loader = DataLoader(Rows(6400), 64, shuffle=True, num_workers=1, persistent_workers=True)
        self.valid_loader = DataLoader(Rows(640), 64)
        self.model = nn.Sequential(
            nn.Linear(256, 2500), nn.ReLU(), nn.Linear(2500, 2500), nn.ReLU(), nn.Linear(2500, 2)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10_000)
        self.watch = Laps(args.seconds)
        self.steps = 0

    def fit(self):
        while self.epoch():
            self.validate()
        self.watch.report()

    def epoch(self):
        for x, y in self.train_loader:
            self.watch.lap("data")
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.watch.lap("forward")
            self.optimizer.zero_grad()
            loss.backward()
            self.watch.lap("backward")
            self.optimizer.step()
            self.watch.lap("optimizer")
            self.schedule.step()
            self.steps += 1
            if self.steps % 50 == 0:
                print(f"step {self.steps}: loss {loss.item():.3f}", flush=True)
            self.watch.lap("other")
            if not self.watch.step():
                return False
        return True

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        for x, _ in self.valid_loader:
            self.model(x)
        self.model.train()
        self.watch.lap("eval")


if __name__ == "__main__":
    Trainer(options()).fit()
