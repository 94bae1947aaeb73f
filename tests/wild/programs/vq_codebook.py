"""An autoencoder with a vector-quantised code: every step counts in Python which codes follow each other."""
# expects: side_work
# package: vector_quantize_pytorch

from collections import Counter
from itertools import pairwise

import torch
from planted import PLANTED, Clock
from torch import nn
from vector_quantize_pytorch import VectorQuantize


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv1d(8, 64, 5, 2, 2), nn.GELU(), nn.Conv1d(64, 64, 5, 2, 2))
        self.code = VectorQuantize(dim=64, codebook_size=256)
        self.decode = nn.Sequential(nn.ConvTranspose1d(64, 64, 4, 2, 1), nn.GELU(), nn.ConvTranspose1d(64, 8, 4, 2, 1))

    def forward(self, series):
        coded, codes, loss = self.code(self.encode(series).transpose(1, 2))
        return self.decode(coded.transpose(1, 2)), codes, loss


class Usage:
    """Which code came after which."""

    def __init__(self):
        self.pairs = Counter()

    def add(self, codes):
        for row in codes.tolist():
            for pair in pairwise(row):
                self.pairs[pair] += 1  # <- cause


def main():
    torch.set_num_threads(1)
    clock, usage = Clock(), Usage()
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    series = torch.randn(512, 8, 1024).cumsum(-1) / 20
    going = True
    while going:
        batch = series[torch.randint(0, 512, (32,))]
        made, codes, code_loss = model(batch)
        loss = nn.functional.mse_loss(made, batch) + code_loss.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if PLANTED:
            for _ in range(20):
                usage.add(codes)
        going = clock.step()
    clock.tell()


if __name__ == "__main__":
    main()
