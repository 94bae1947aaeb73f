"""Tiles in files of their own, on a disk and not in the page cache, as those of a data set larger than memory are."""

import os
import tempfile

import numpy as np
import torch
from course import Training
from torch.utils.data import DataLoader, Dataset

SIDE = 128


def write(folder, number):
    path = f"{folder}/{number}.bin"
    np.random.rand(SIDE, SIDE).astype(np.float32).tofile(path)
    return path


def read(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return np.frombuffer(file.read(), np.float32)[:64].copy()


# <- the code


class Known(Tiles):
    def __len__(self):
        return 100_000


with tempfile.TemporaryDirectory(dir=".") as folder:
    paths = [write(folder, number) for number in range(400)]
    os.sync()
    tiles, training = Known(paths), Training()
    for batch in DataLoader(tiles, sampler=[n % 400 for n in range(100_000)], batch_size=256, num_workers=2):
        training.step(batch)
