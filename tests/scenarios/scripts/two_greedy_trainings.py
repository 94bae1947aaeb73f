"""Two trainings side by side, each with as many threads as there are cores."""
# expects: cpu_oversubscribed

import os
import subprocess
import sys
from itertools import repeat

import torch
from laps import fit, options
from torch import nn


def train(args):
    torch.set_num_threads(1 if args.fixed else os.cpu_count())
    model = nn.Sequential(nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.Flatten(), nn.Linear(18816, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x, y = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    fit(args, optimizer, repeat((x, y)), lambda x, y: nn.functional.cross_entropy(model(x), y))


if os.environ.get("PART"):
    train(options())
else:
    command = [sys.executable, *sys.argv]
    parts = [subprocess.Popen(command, env={**os.environ, "PART": str(n)}) for n in (1, 2)]
    sys.exit(max(part.wait() for part in parts))
