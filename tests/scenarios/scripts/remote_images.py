"""Two workers wait for a remote store; the processors have nothing to do."""
# expects: input_bound/workers_saturated

import time

import torch
from laps import fit, options
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


def main():
    args = options()
    loader = DataLoader(Remote(range(1_000_000)), 16, num_workers=8 if args.fixed else 2)
    model, criterion = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 7)), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    fit(args, optimizer, loader, lambda x, y: sum(criterion(model(x), y) for _ in range(12)))


if __name__ == "__main__":
    main()
