"""A sampler draws every index from the whole table of weights; the workers idle."""
# expects: input_bound/sampler

import torch
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Balanced(Sampler):
    def __init__(self, weights, at_once):
        self.weights, self.at_once = weights, at_once

    def __len__(self):
        return 1_000_000

    def __iter__(self):
        if self.at_once:
            while True:
                yield from torch.multinomial(self.weights, 10_000, replacement=True).tolist()
        while True:
            yield torch.multinomial(self.weights, 1).item()  # <- cause


def main():
    args = options()
    count = 40_000
    data = TensorDataset(torch.randn(count, 32), torch.randint(5, (count,)))
    loader = DataLoader(data, batch_size=64, sampler=Balanced(torch.rand(count), args.fixed), num_workers=1)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 5))
    optimizer = torch.optim.Adam(model.parameters())
    fit(args, optimizer, loader, lambda x, y: nn.functional.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()
