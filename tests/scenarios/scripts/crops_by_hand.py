"""A get_batch() that encodes text anew for every batch; no DataLoader."""
# expects: input_bound/hand_rolled_loader

import random

import torch
import torch.nn.functional as F
from laps import Laps, options
from torch import nn

BLOCK, BATCH = 64, 24
TEXT = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz ", k=200_000))


def get_batch(fixed):
    if fixed:
        starts = torch.randint(len(TOKENS) - BLOCK - 1, (BATCH, 1))
        window = starts + torch.arange(BLOCK)
        return TOKENS[window], TOKENS[window + 1]
    xs, ys = [], []
    for _ in range(BATCH):
        start = random.randrange(len(TEXT) - BLOCK - 1)
        codes = [VOCABULARY.index(c) for c in TEXT[start : start + BLOCK + 1] * 6]  # <- cause
        xs.append(torch.tensor(codes[:BLOCK]))
        ys.append(torch.tensor(codes[1 : BLOCK + 1]))
    return torch.stack(xs), torch.stack(ys)


class Next(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embed = nn.Embedding(size, 32)
        self.mix = nn.Linear(32, 32)
        self.head = nn.Linear(32, size)

    def forward(self, x, y):
        logits = self.head(torch.tanh(self.mix(self.embed(x))))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


VOCABULARY = sorted(set(TEXT))
TOKENS = torch.tensor([VOCABULARY.index(c) for c in TEXT])
args = options()
model = Next(len(VOCABULARY))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
watch = Laps(args.seconds)
while True:
    x, y = get_batch(args.fixed)
    watch.lap("data")
    loss = model(x, y)
    watch.lap("forward")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    watch.lap("backward")
    optimizer.step()
    watch.lap("optimizer")
    if not watch.step():
        break
watch.report()
