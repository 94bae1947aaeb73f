"""Eight intra-op threads on the few cores there are."""
# expects: cpu_oversubscribed

import torch
from laps import Laps, options
from torch import nn

args = options()
torch.set_num_threads(1 if args.fixed else 8)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(128, 512), torch.randn(128, 16)
watch = Laps(args.seconds)
while True:
    loss = nn.functional.mse_loss(model(x), y)
    watch.lap("forward")
    optimizer.zero_grad()
    loss.backward()
    watch.lap("backward")
    optimizer.step()
    watch.lap("optimizer")
    if not watch.step():
        break
watch.tell()
