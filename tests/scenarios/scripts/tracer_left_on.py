"""A tracer that somebody needed once follows each line of the training."""
# expects: slow_setting/tracer

import sys
from collections import Counter
from itertools import repeat

import torch
from laps import fit, options
from torch import nn

SEEN = Counter()


def trace(frame, event, argument):
    SEEN[frame.f_code] += 1  # <- cause
    return trace


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(32, 32)

    def forward(self, words):
        state = words.new_zeros(len(words), 32)
        for word in words.unbind(1):
            state = self.cell(word, state)
        return state.square().mean()


def main():
    args = options()
    if not args.fixed:
        sys.settrace(trace)
    train(args)


def train(args):
    model = Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    fit(args, optimizer, repeat(()), lambda: model(torch.randn(8, 20, 32)))


if __name__ == "__main__":
    main()
