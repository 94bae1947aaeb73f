"""Eight intra-op threads on the few cores there are."""
# expects: cpu_oversubscribed

from itertools import repeat

import torch
from laps import fit, options
from torch import nn

args = options()
torch.set_num_threads(1 if args.fixed else 8)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(128, 512), torch.randn(128, 16)
fit(args, optimizer, repeat((x, y)), lambda x, y: nn.functional.mse_loss(model(x), y))
