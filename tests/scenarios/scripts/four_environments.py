"""A rollout asks the policy for four environments at a time, though it could for sixteen: more calls, as much data."""
# expects: input_bound/rollout

import torch
from laps import fit, options
from torch import nn

SAMPLES = 256


class Environments:
    """Some that are stepped together; each takes little time."""

    def __init__(self, number):
        self.states = torch.zeros(number, 8)

    def step(self, actions):
        for row, action in zip(self.states, actions.tolist(), strict=True):
            row[action] += 0.1
        return self.states.clone()


def roll_out(environments, policy, steps):
    states, seen = environments.states.clone(), []
    with torch.no_grad():
        for _ in range(steps):
            scores = policy(states)  # <- cause
            states = environments.step(scores.softmax(-1).multinomial(1)[:, 0])
            seen.append(states)
    return torch.cat(seen)


def main():
    args = options()
    number = 16 if args.fixed else 4
    environments = Environments(number)
    policy = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(20)])
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def rollouts():
        while True:
            yield (roll_out(environments, policy, SAMPLES // number),)

    fit(args, optimizer, rollouts(), lambda states: policy(states).square().mean())


if __name__ == "__main__":
    main()
