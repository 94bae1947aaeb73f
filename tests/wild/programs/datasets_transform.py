"""datasets' Arrow table with a transform: each text is split, counted and hashed when it is read."""
# expects: input_bound
# package: datasets

import torch
from datasets import Dataset
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader

WORDS = [f"word{n}" for n in range(500)]


def hashed(batch):
    rows = []
    for text in batch["text"]:
        row = [0.0] * 128
        for _ in range(20):
            for word in text.split():  # <- cause
                row[sum(map(ord, word)) % 128] += 0.05  # <- cause
        rows.append(row)
    return {"x": [torch.tensor(row) for row in rows], "y": batch["y"]}


def looked_up(batch):
    return {"x": [TABLE[y] for y in batch["y"]], "y": batch["y"]}


TABLE = torch.randn(4, 128)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    texts = [" ".join(WORDS[(7 * n + 13 * k) % 500] for k in range(30)) for n in range(2000)]
    data = Dataset.from_dict({"text": texts, "y": [n % 4 for n in range(2000)]})
    data.set_transform(hashed if PLANTED else looked_up)
    net = nn.Sequential(nn.Linear(128, 1800), nn.GELU(), nn.Linear(1800, 1800), nn.GELU(), nn.Linear(1800, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    while True:
        for batch in DataLoader(data, batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(net(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
