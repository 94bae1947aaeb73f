"""Episodes get longer as a policy learns to stay up: each step has more data, and does nothing slower."""
# healthy

import time

import torch
from laps import fit, options
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

    def episodes():
        begin = time.perf_counter()
        while True:
            learned = min(1.0, (time.perf_counter() - begin) / args.seconds)
            yield (episode(int(FIRST + learned * (LAST - FIRST))),)

    def loss_of(states):
        choices = Categorical(logits=policy(states))
        return -choices.log_prob(choices.sample()).mean()

    fit(args, optimizer, episodes(), loss_of)


if __name__ == "__main__":
    main()
