"""Predictions that are kept for a plot keep their graphs with all activations: some megabytes a step."""
# expects: memory_growth
# missed: no rule says within the first minute that memory grows

import torch
from laps import Laps, options
from torch import nn

#: Predictions that are kept at most, so that no machine runs out of memory.
KEPT = 500


def main():
    args = options()
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = Laps(args.seconds)
    held_out, predictions = torch.randn(128, 256), []
    while True:
        loss = model(torch.randn(128, 256)).square().mean()
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        predictions.append(model(held_out))  # <- cause
        del predictions[:-KEPT]
        watch.lap("other")
        if not watch.step():
            break
    watch.tell()


if __name__ == "__main__":
    main()
