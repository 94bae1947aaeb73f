"""A sampler that draws the whole epoch, by weight and in Python, before the first batch of it."""
# expects: input_bound/sampler

import bisect
import itertools
import random

import torch
import torch.nn.functional as F
from laps import endless, fit, options
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

ROWS = 300_000


class Rows(Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(ROWS, 32), torch.randint(10, (ROWS,))

    def __getitems__(self, indices):
        return self.x[indices], self.y[indices]


class ByWeight(Sampler):
    def __init__(self, weights, fast):
        self.weights, self.fast = weights, fast

    def __len__(self):
        return len(self.weights)

    def __iter__(self):
        if self.fast:
            return iter(torch.multinomial(torch.tensor(self.weights), len(self), replacement=True).tolist())
        return iter(self.draw())

    def draw(self):
        sums, drawn = list(itertools.accumulate(self.weights)), []
        for _ in self.weights:
            drawn.append(bisect.bisect(sums, random.uniform(0.0, sums[-1])))  # <- cause
        return [min(index, len(self) - 1) for index in drawn]


def main():
    args = options()
    sampler = ByWeight([random.random() for _ in range(ROWS)], args.fixed)
    loader = DataLoader(Rows(), 2048, sampler=sampler, collate_fn=tuple)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(args, optimizer, endless(loader), lambda x, y: F.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()
