"""Photos that come from storage one by one."""

import time

import torch
from course import Training
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.0015)
        return torch.randn(64)


photos, training = Photos(), Training()
# <- the code
for batch in loader:
    training.step(batch)
