"""tensordict modules over an own loop: a weighted sampler draws each row by walking through all weights in Python."""
# expects: input_bound/sampler
# package: tensordict

import random

import torch
from planted import PLANTED, Clock
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Rows(Dataset):
    def __init__(self, size):
        self.x = torch.randn(size, 48)
        self.y = torch.randn(size, 4)

    def __len__(self):
        return len(self.x)

    def __getitems__(self, indices):
        return self.x[indices], self.y[indices]


def as_rows(batch):
    x, y = batch
    return TensorDict({"x": x, "y": y}, batch_size=[len(x)])


class Weighted(Sampler):
    def __init__(self, size, batch):
        self.weights = [random.random() for _ in range(size)]
        self.batch = batch

    def draw(self):
        left = random.random() * sum(self.weights)
        for index, weight in enumerate(self.weights):  # <- cause
            left -= weight  # <- cause
            if left <= 0:  # <- cause
                return index
        return 0

    def __iter__(self):
        for _ in range(500):
            if PLANTED:
                yield [self.draw() for _ in range(self.batch)]
            else:
                yield torch.randint(len(self.weights), (self.batch,)).tolist()


def main():
    torch.set_num_threads(1)
    clock = Clock()
    body = TensorDictModule(
        nn.Sequential(nn.Linear(48, 400), nn.GELU(), nn.Linear(400, 400), nn.GELU()), in_keys=["x"], out_keys=["hidden"]
    )
    net = TensorDictSequential(body, TensorDictModule(nn.Linear(400, 4), in_keys=["hidden"], out_keys=["out"]))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    while True:
        for rows in DataLoader(Rows(1000), batch_sampler=Weighted(1000, 128), collate_fn=as_rows):
            out = net(rows)
            loss = (out["out"] - out["y"]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
