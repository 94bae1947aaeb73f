"""A logger holds every output that it is given."""
# expects: memory_pressure/growing

import torch
import torch.nn.functional as F
from laps import options, small_model, steps


def make_logger():
    history = []

    def log(name, value):
        history.append((name, value))  # <- cause

    return log


def main():
    args = options()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    log = make_logger()
    for _ in steps(args.seconds):
        x = torch.randn(64, 256)
        output = model(x)
        loss = F.mse_loss(output, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log("output", output.mean().item() if args.fixed else output)


if __name__ == "__main__":
    main()
