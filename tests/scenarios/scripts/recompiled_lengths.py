"""A compiled model is compiled anew for nearly every length of its batches."""
# expects: recompiles

import random

import torch
import torch.nn.functional as F
from laps import fit, options
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

    def batches():
        while True:
            length = random.randint(10, LONGEST)
            padded = LONGEST if args.fixed else length
            yield torch.randint(1000, (1, padded)), torch.randint(20, (padded,)), padded

    def loss_of(words, tags, padded):
        return F.cross_entropy(tagger(words, padded)[0], tags)  # <- cause

    fit(args, optimizer, batches(), loss_of)


if __name__ == "__main__":
    main()
