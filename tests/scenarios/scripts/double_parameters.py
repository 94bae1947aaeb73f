"""NumPy's arrays made the model's inputs float64, and its parameters were made float64 to match."""
# expects: slow_setting/float64
# missed: no rule knows the settings that are in force

import numpy as np
import torch
from laps import Laps, options
from torch import nn

args = options()
torch.set_num_threads(1)
rows = np.random.default_rng(0).normal(size=(64, 512))
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
if not args.fixed:
    model.double()  # <- cause
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.from_numpy(rows).float() if args.fixed else torch.from_numpy(rows)
watch = Laps(args.seconds)
while True:
    loss = model(x).square().mean()
    watch.lap("forward")
    optimizer.zero_grad()
    loss.backward()
    watch.lap("backward")
    optimizer.step()
    watch.lap("optimizer")
    if not watch.step():
        break
watch.tell()
