"""A data set of numbers, one item of which may raise."""

import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import Dataset  # noqa: E402


class Batches(Dataset):
    def __init__(self, length=4, bad=None, error=ValueError):
        self.length, self.bad, self.error = length, bad, error

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error("bad item")
        return torch.tensor([float(index)])
