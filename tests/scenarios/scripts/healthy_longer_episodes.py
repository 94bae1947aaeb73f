"""Episodes get longer as a policy learns to stay up: each step has more data, and does nothing slower."""
# healthy

import time

import torch
from laps import Laps, options
from torch import nn
from torch.distributions import Categorical

#: Moments of an episode at the beginning and at the end.
FIRST, LAST = 20, 500


def episode(length):
    """The states that the policy saw."""
    return torch.randn(length, 64).cumsum(0).tanh()


def main():
    args = options()
    policy = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 4))
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    begin = time.perf_counter()
    watch = Laps(args.seconds)
    while True:
        learned = min(1.0, (time.perf_counter() - begin) / args.seconds)
        states = episode(int(FIRST + learned * (LAST - FIRST)))
        watch.lap("data")
        choices = Categorical(logits=policy(states))
        loss = -choices.log_prob(choices.sample()).mean()
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        if not watch.step():
            break
    watch.tell()


if __name__ == "__main__":
    main()
