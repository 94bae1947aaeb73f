"""An exponential average of the features holds the graphs of all steps before."""
# expects: memory_pressure/growing

import torch
from laps import options, small_model, steps


def main():
    args = options()
    body, head = small_model(64, 24), torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-3)
    average = torch.zeros(64)
    for _ in steps(args.seconds):
        features = body(torch.randn(32, 64))
        loss = head(features).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        center = features.mean(0)
        if args.fixed:
            center = center.detach()
        average = 0.99 * average + 0.01 * center  # <- cause


if __name__ == "__main__":
    main()
