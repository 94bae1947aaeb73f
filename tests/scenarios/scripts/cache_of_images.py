"""A data set keeps each image that it has decoded, and never forgets one: memory grows by half a megabyte a step."""
# expects: memory_pressure/growing
# seconds: 35

import torch
import torch.nn.functional as F
from laps import endless, options, steps
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, keeps):
        self.cache = {}
        self.keeps = keeps

    def __len__(self):
        return 40_000  # 1.5 GB in all

    def __getitem__(self, index):
        if index in self.cache:
            return self.cache[index]
        image = torch.full((1, 96, 96), index / 40_000)
        if self.keeps:
            self.cache[index] = image  # <- cause
        return image


def main():
    args = options()
    loader = DataLoader(Images(keeps=not args.fixed), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.Flatten(), nn.Linear(8464, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _, x in zip(steps(args.seconds), endless(loader), strict=False):
        loss = F.cross_entropy(model(x), torch.zeros(len(x), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
