"""A schedule-free optimizer on text: every step mixes documents token by token in the training process."""
# expects: input_bound
# package: schedulefree

import random

import torch
from planted import PLANTED, Clock
from schedulefree import AdamWScheduleFree
from torch import nn

WORDS = 1000


class Corpus:
    """Endless batches, made when they are asked for."""

    def __init__(self):
        rng = random.Random(0)
        self.documents = [[rng.randrange(WORDS) for _ in range(6000)] for _ in range(200)]
        self.rng = rng

    def __iter__(self):
        while True:
            rows = [self.rng.choice(self.documents) for _ in range(16)]
            yield torch.tensor([self.mixed(row) if PLANTED else row[:65] for row in rows])

    def mixed(self, row):
        other = self.rng.choice(self.documents)
        both = []
        for a, b in zip(row, other, strict=True):
            both.append(a if self.rng.random() < 0.7 else b)  # <- cause
            if both[-1] % 97 == 0:  # <- cause
                both.reverse()
        return both[:65]


def main():
    torch.set_num_threads(1)
    clock = Clock()
    layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Embedding(WORDS, 96), nn.TransformerEncoder(layer, 1), nn.Linear(96, WORDS))
    optimizer = AdamWScheduleFree(model.parameters(), lr=1e-3)
    optimizer.train()
    for batch in Corpus():
        scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
