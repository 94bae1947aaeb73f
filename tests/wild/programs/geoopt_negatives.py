"""Poincaré embeddings with geoopt: the data set draws hard negatives of each pair in plain Python."""
# expects: input_bound
# package: geoopt

import random

import geoopt
import torch
from planted import PLANTED, Clock
from torch.utils.data import DataLoader, Dataset

WORDS = 1000
NEGATIVES = 150


class Hypernyms(Dataset):
    def __init__(self):
        self.parents = [max(0, (word - 1) // 3) for word in range(WORDS)]
        self.random = torch.randint(0, WORDS, (WORDS, NEGATIVES))

    def __len__(self):
        return WORDS

    def __getitem__(self, word):
        negatives = self.negatives(word) if PLANTED else self.random[word]
        return torch.cat((torch.tensor([word, self.parents[word]]), negatives))

    def negatives(self, word):
        known = self.ancestors(word)
        found = []
        while len(found) < NEGATIVES:
            other = random.randrange(WORDS)
            if not known & self.ancestors(other) - {0}:  # <- cause
                found.append(other)
        return torch.tensor(found)

    def ancestors(self, word):
        found = {word}  # <- cause
        while word:  # <- cause
            word = self.parents[word]  # <- cause
            found.add(word)  # <- cause
        return found


class Embedding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ball = geoopt.PoincareBall()
        self.points = geoopt.ManifoldParameter(1e-3 * torch.randn(WORDS, 24), manifold=self.ball)

    def forward(self, batch):
        points = self.points[batch]
        return -self.ball.dist(points[:, :1], points[:, 1:])


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = Embedding()
    optimizer = geoopt.optim.RiemannianAdam(model.parameters(), lr=1e-2)
    loader = DataLoader(Hypernyms(), batch_size=32, shuffle=True)
    going = True
    while going:
        for batch in loader:
            optimizer.zero_grad()
            scores = model(batch)
            torch.nn.functional.cross_entropy(scores, torch.zeros(len(batch), dtype=torch.long)).backward()
            optimizer.step()
            going = clock.step()
            if not going:
                break
    clock.tell()


if __name__ == "__main__":
    main()
