"""A tracer that somebody needed once follows each line of the training."""
# expects: slow_setting/tracer

import sys
from collections import Counter

import torch
from laps import Laps, options
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
    torch.set_num_threads(1)
    if not args.fixed:
        sys.settrace(trace)
    train(args)


def train(args):
    model = Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    watch = Laps(args.seconds)
    while True:
        loss = model(torch.randn(8, 20, 32))
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
