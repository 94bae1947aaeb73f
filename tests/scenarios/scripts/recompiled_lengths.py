"""A compiled model is compiled anew for nearly every length of its batches."""
# expects: recompiles

import random

import torch
import torch.nn.functional as F
from laps import Laps, options
from torch import nn

torch._dynamo.config.cache_size_limit = 1_000_000
LONGEST = 4000


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.tags = nn.Embedding(1000, 64), nn.Linear(64, 20)

    def forward(self, words, length):
        position = torch.arange(words.shape[1]) / length
        return self.tags(torch.tanh(self.embed(words) + position[:, None]))


def main():
    args = options()
    model = Tagger()
    tagger = torch.compile(model, backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = Laps(args.seconds)
    while True:
        length = random.randint(10, LONGEST)
        padded = LONGEST if args.fixed else length
        words, tags = torch.randint(1000, (1, padded)), torch.randint(20, (padded,))
        watch.lap("data")
        loss = F.cross_entropy(tagger(words, padded)[0], tags)  # <- cause
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()


if __name__ == "__main__":
    main()
