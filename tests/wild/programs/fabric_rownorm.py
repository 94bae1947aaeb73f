"""Trains a residual MLP with Lightning Fabric; planted: a home-made optimizer updates its weights row by row."""

# expects: optimizer_bound
# package: lightning
import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from planted import PLANTED, Clock
from torch import nn


class RowNormMomentum(torch.optim.Optimizer):
    """Momentum whose update has the same length in each row (output unit) of a weight."""

    def __init__(self, params, lr=1e-2, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    def buffer_of(self, param):
        state = self.state[param]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(param)
        return state["momentum"]

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self.update(param, self.buffer_of(param), group["lr"], group["momentum"])
        return loss

    def update(self, param, buffer, lr, momentum):
        buffer.mul_(momentum).add_(param.grad)
        if param.dim() < 2:
            param.sub_(buffer, alpha=lr)
            return
        norms = buffer.norm(dim=1, keepdim=True).clamp_min_(1e-8)
        param.addcdiv_(buffer, norms, value=-lr)


class RowByRow(RowNormMomentum):
    def update(self, param, buffer, lr, momentum):
        buffer.mul_(momentum).add_(param.grad)
        if param.dim() < 2:
            param.sub_(buffer, alpha=lr)
            return
        for row in range(param.shape[0]):
            norm = buffer[row].norm().item()  # <- cause
            if norm > 1e-8:
                param[row] -= lr / norm * buffer[row]  # <- cause


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(F.silu(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, features=512, dim=96, depth=1, classes=8):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.blocks = nn.Sequential(*(Block(dim) for _ in range(depth)))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def main():
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    torch.manual_seed(0)

    model = Net()
    optimizer = (RowByRow if PLANTED else RowNormMomentum)(model.parameters())
    model, optimizer = fabric.setup(model, optimizer)
    inputs = torch.randn(30, 1536, 512)
    targets = torch.randint(8, (30, 1536))

    step = 0
    clock = Clock()
    while True:
        x, y = inputs[step % len(inputs)], targets[step % len(inputs)]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        fabric.backward(loss)
        optimizer.step()
        step += 1
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
