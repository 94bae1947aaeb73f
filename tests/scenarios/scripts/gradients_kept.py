"""The gradients of every step go into a list of the module, for statistics."""
# expects: memory_pressure/growing

import torch
import torch.nn.functional as F
from laps import options, small_model, steps

GRADIENTS = []


def note_gradients(model, fixed):
    found = [parameter.grad.clone() for parameter in model.parameters()]
    if fixed:
        return sum(float(gradient.norm()) for gradient in found)
    GRADIENTS.append(found)  # <- cause
    return None


def main():
    args = options()
    model = small_model(128)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in steps(args.seconds):
        x = torch.randn(64, 128)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        note_gradients(model, args.fixed)
        optimizer.step()


if __name__ == "__main__":
    main()
