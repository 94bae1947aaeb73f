"""The loss on held-out data is kept with its graph, for a plot at the end."""
# expects: memory_pressure/growing

import torch
import torch.nn.functional as F
from laps import options, small_model, steps


def main():
    args = options()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    held = torch.randn(64, 256)
    checks = []
    for _ in steps(args.seconds):
        x = torch.randn(64, 256)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.fixed:
            checks.append(F.mse_loss(model(held), held).item())
        else:
            checks.append(F.mse_loss(model(held), held))  # <- cause


if __name__ == "__main__":
    main()
