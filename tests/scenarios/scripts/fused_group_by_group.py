"""A fused optimizer that has a parameter group for each tensor, and so takes them one by one."""
# expects: optimizer_bound

import torch
from laps import Laps, options
from torch import nn

args = options()
model = nn.Sequential(*[nn.Linear(24, 24) for _ in range(150)])
groups = [{"params": list(model.parameters())}] if args.fixed else [{"params": [p]} for p in model.parameters()]
optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
watch = Laps(args.seconds)
while True:
    loss = model(torch.randn(8, 24)).square().mean()
    watch.lap("forward")
    optimizer.zero_grad()
    loss.backward()
    watch.lap("backward")
    optimizer.step()  # <- cause
    watch.lap("optimizer")
    if not watch.step():
        break
watch.report()
