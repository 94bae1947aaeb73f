"""REINFORCE by hand on gymnasium's CartPole: the environment is wrapped by slow preprocessing."""
# expects: input_bound/rollout
# package: gymnasium

import gymnasium
import numpy as np
import torch
from planted import PLANTED, Clock
from torch import nn


class Blurred(gymnasium.ObservationWrapper):
    def observation(self, observation):
        if PLANTED:
            for _ in range(200):
                observation = np.convolve(observation, np.hanning(3), "same")  # <- cause
                observation = observation / max(1.0, np.abs(observation).max())  # <- cause
        return np.asarray(observation, "float32")


def rollout(env, policy, count):
    states, rewards = [], []
    state, _ = env.reset()
    for _ in range(count):
        with torch.no_grad():
            action = int(policy(torch.from_numpy(state)).argmax())
        states.append(state)
        state, reward, done, cut, _ = env.step(action)
        rewards.append(float(reward))
        if done or cut:
            state, _ = env.reset()
    return torch.from_numpy(np.stack(states)), torch.tensor(rewards)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    env = Blurred(gymnasium.make("CartPole-v1"))
    policy = nn.Sequential(nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    while True:
        states, rewards = rollout(env, policy, 16)
        for _ in range(4):
            loss = -(policy(states.repeat(8, 1)).log_softmax(1)[:, 0] * rewards.repeat(8)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if not clock.step():
            return clock.tell()


if __name__ == "__main__":
    main()
