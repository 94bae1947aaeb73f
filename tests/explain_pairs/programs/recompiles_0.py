"""A compiled model that is given a factor for its input, which changes from step to step."""

import torch
from course import is_over
from torch import nn

torch.set_num_threads(1)
for limit in ("cache_size_limit", "recompile_limit", "accumulated_cache_size_limit", "accumulated_recompile_limit"):
    if hasattr(torch._dynamo.config, limit):
        setattr(torch._dynamo.config, limit, 1_000_000)  # else it runs uncompiled after some versions


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, x, scale):
        return self.layers(x * scale)


model = Scaled()
compiled = torch.compile(model, backend="eager", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def batches():
    while not is_over():
        yield torch.randn(64, 256)


def train(x, scale):
    loss = (compiled(x, scale) / scale).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# <- the code
