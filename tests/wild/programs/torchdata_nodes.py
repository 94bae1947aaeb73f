"""torchdata's nodes, a pipeline of threads without a DataLoader: documents are packed token by token."""
# expects: input_bound
# package: torchdata

import torch
from planted import PLANTED, Clock
from torch import nn
from torchdata.nodes import Batcher, IterableWrapper, Loader, ParallelMapper, Prefetcher

LENGTH = 64


class Numbers:
    def __iter__(self):
        number = 0
        while True:
            number += 1
            yield number


def pack(number):
    if PLANTED:
        return pack_by_hand(number)
    return torch.arange(number, number + LENGTH) % 300


def pack_by_hand(number):
    tokens = []
    for position in range(LENGTH):
        token = number + position
        for _ in range(80):
            token = (token * 31 + position) % 1009  # <- cause
        tokens.append(token % 300)
    return torch.tensor(tokens)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    items = ParallelMapper(IterableWrapper(Numbers()), pack, num_workers=2, method="thread")
    loader = Loader(Prefetcher(Batcher(items, 16), prefetch_factor=2))
    model = nn.Sequential(
        nn.Embedding(300, 48), nn.Flatten(), nn.Linear(48 * LENGTH, 1500), nn.ReLU(), nn.Linear(1500, 300)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for batch in loader:
        tokens = torch.stack(batch)
        loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
