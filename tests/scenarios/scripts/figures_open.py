"""A figure of the weights every few steps, which nobody closes."""
# expects: memory_pressure/growing
# package: matplotlib

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from laps import options, small_model, steps


def main():
    args = options()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in steps(args.seconds):
        x = torch.randn(64, 256)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0 or (step % 10 == 0 and not args.fixed):
            plt.figure()  # <- cause
            plt.imshow(model[0].weight.detach())
            plt.savefig("/dev/null", format="png")


if __name__ == "__main__":
    main()
