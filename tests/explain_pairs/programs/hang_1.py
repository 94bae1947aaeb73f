"""A data set that reads in threads, used once before its workers are forked."""

from concurrent.futures import ThreadPoolExecutor

import torch
from course import Training
from torch.utils.data import DataLoader, Dataset, get_worker_info


def read(index):
    return torch.randn(64)


# <- the code


Data.__len__ = lambda data: 6400
if hasattr(Data, "pool"):  # its threads are started
    Data()[0]
training = Training()
for batch in loader:
    training.step(batch)
