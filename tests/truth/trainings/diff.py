"""A small training on one core, as long as it is asked to be.

``compute`` has a model, ``loader`` makes batches in the training process, ``storage`` waits for them.
"""

from __future__ import annotations

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows that take some work each, in batches that take some time to come."""

    def __init__(self, work: int = 0, wait_s: float = 0.0) -> None:
        self.rows = torch.randn(3200, 128)
        self.work = work
        self.wait_s = wait_s

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if self.wait_s:
            time.sleep(self.wait_s * random.uniform(0.9, 1.1))
        return [self[index] for index in indices]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = self.rows[index]
        for _ in range(self.work):
            row = row.sin()
        return row, (row[0] > 0).long()


_DATA = {"compute": Rows(), "loader": Rows(work=20), "storage": Rows(wait_s=0.015)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=tuple(_DATA), default="compute")
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = 1200 if args.kind == "compute" else 200
    model = nn.Sequential(nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(_DATA[args.kind], batch_size=64)
    end = time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if time.perf_counter() >= end:
                break


if __name__ == "__main__":
    main()
