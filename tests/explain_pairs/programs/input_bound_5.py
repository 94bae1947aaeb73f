"""Scans that come from storage over a network, one by one."""

import time

import torch
from course import Training
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.randn(64)


scans, training = Scans(), Training(ms=12)
# <- the code
for batch in loader:
    training.step(batch)
