"""A data set of Python objects: each forked worker that reads one copies the page that it lies on."""
# expects: memory_pressure/copied
# package: numpy

import numpy as np
import torch
import torch.nn.functional as F
from laps import endless, options, small_model, steps
from torch.utils.data import DataLoader, Dataset

NUMBER, EACH = 6_000_000, 10


class Sentences(Dataset):
    def __init__(self, fixed):
        self.words = np.arange(NUMBER) if fixed else [f"word {number}" for number in range(NUMBER)]

    def __len__(self):
        return NUMBER // EACH

    def __getitem__(self, index):
        first = index * EACH
        return torch.tensor([float(len(str(word))) for word in self.words[first : first + EACH]])


def main():
    args = options()
    model = small_model(EACH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Sentences(args.fixed), batch_size=64, num_workers=2, shuffle=True, multiprocessing_context="fork"
    )
    for _, x in zip(steps(args.seconds), endless(loader), strict=False):
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
