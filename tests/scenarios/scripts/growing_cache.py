"""A data set keeps each image that it has decoded, and never forgets one: memory grows by half a megabyte a step."""
# expects: memory_growth
# missed: its trend is certain 24 s after the first step, and this run ends before

import itertools

import torch
import torch.nn.functional as F
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 40_000  # 1.5 GB in all

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = torch.full((1, 96, 96), index / 40_000)  # <- cause
        return self.cache[index], index % 10


def main():
    args = options()
    torch.set_num_threads(1)
    loader = DataLoader(Images(), batch_size=16)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.Flatten(), nn.Linear(8464, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = Laps(args.seconds)
    for x, y in itertools.chain.from_iterable(itertools.repeat(loader)):
        watch.lap("data")
        loss = F.cross_entropy(model(x), y)
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()


if __name__ == "__main__":
    main()
