"""Environments in processes of their own, whose pipes take longer than their steps."""
# expects: input_bound/rollout
# missed: the pipes' share of a rollout is not known

import multiprocessing

import torch
from laps import fit, options
from torch import nn

NUMBER, STEPS = 4, 32


def step(state, action):
    return [value + 0.1 * (n == action) for n, value in enumerate(state)]


def serve(pipe):
    state = [0.0] * 8
    while (action := pipe.recv()) is not None:
        state = step(state, action)
        pipe.send(state)


class InProcesses:
    def __init__(self):
        self.pipes = []
        for _ in range(NUMBER):
            ours, theirs = multiprocessing.Pipe()
            multiprocessing.Process(target=serve, args=(theirs,), daemon=True).start()
            self.pipes.append(ours)

    def step(self, actions):
        for pipe, action in zip(self.pipes, actions, strict=True):
            pipe.send(action)
        return [pipe.recv() for pipe in self.pipes]  # <- cause


class Together:
    def __init__(self):
        self.states = [[0.0] * 8 for _ in range(NUMBER)]

    def step(self, actions):
        self.states = [step(state, action) for state, action in zip(self.states, actions, strict=True)]
        return self.states


def roll_out(environments, policy):
    states, seen = torch.zeros(NUMBER, 8), []
    with torch.no_grad():
        for _ in range(STEPS):
            actions = policy(states).argmax(-1).tolist()
            states = torch.tensor(environments.step(actions))
            seen.append(states)
    return torch.cat(seen)


def main():
    args = options()
    environments = Together() if args.fixed else InProcesses()
    policy = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def rollouts():
        while True:
            yield (roll_out(environments, policy),)

    fit(args, optimizer, rollouts(), lambda states: policy(states).square().mean())


if __name__ == "__main__":
    main()
