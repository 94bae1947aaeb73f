"""A buffer of experience without a bound."""
# expects: memory_pressure/growing

import random

import torch
from laps import options, small_model, steps


class Replay:
    def __init__(self, size):
        self.moments = []
        self.size = size

    def push(self, state, reward):
        if len(self.moments) < self.size:
            self.moments.append((state, reward))  # <- cause
        else:
            self.moments[random.randrange(self.size)] = (state, reward)

    def sample(self, number):
        states, rewards = zip(*random.choices(self.moments, k=number), strict=True)
        return torch.stack(states), torch.tensor(rewards)


def main():
    args = options()
    policy = small_model()
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    replay = Replay(size=500 if args.fixed else 10**7)
    for _ in steps(args.seconds):
        for _ in range(32):
            replay.push(torch.randn(4, 256), random.random())
        states, rewards = replay.sample(32)
        loss = (policy(states).mean((1, 2)) - rewards).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
