"""A model of x_transformers in a loop of one's own: after the fetch the batch is corrupted token by token."""
# expects: input_bound
# package: x_transformers

import random

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from x_transformers import Encoder, TransformerWrapper


class Corruption:
    def __init__(self, share):
        self.share = share

    def __call__(self, tokens):
        return self.replace(tokens) if PLANTED else torch.where(torch.rand(tokens.shape) < self.share, 0, tokens)

    def replace(self, tokens):
        out = tokens.clone()
        for row in range(tokens.shape[0]):
            for column in range(tokens.shape[1]):
                if random.random() < self.share:
                    out[row, column] = tokens[row, random.randrange(tokens.shape[1])]  # <- cause
        return out


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = TransformerWrapper(num_tokens=200, max_seq_len=64, attn_layers=Encoder(dim=32, depth=1, heads=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = TensorDataset(torch.randint(0, 200, (6400, 64)))
    corrupted = Corruption(0.8)
    while True:
        for (tokens,) in DataLoader(rows, batch_size=32, shuffle=True):
            logits = model(corrupted(tokens))
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
