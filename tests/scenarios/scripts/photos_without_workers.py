"""Photos are decoded and augmented in the training process."""
# expects: input_bound/no_workers

import numpy as np
import torch
import torch.nn.functional as F
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        photo = rng.integers(0, 255, (3, 32, 32), dtype=np.uint8).astype(np.float32)
        return torch.from_numpy(blur(photo)), index % 10


def blur(photo):
    rows = [np.convolve(row, (0.25, 0.5, 0.25), "same") for plane in photo for row in plane]  # <- cause
    return np.stack(rows).reshape(photo.shape).astype(np.float32) / 255


def main():
    args = options()
    loader = DataLoader(Photos(), batch_size=32, num_workers=1 if args.fixed else 0)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8192, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(args, optimizer, loader, lambda x, y: F.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()
