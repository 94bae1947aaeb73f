"""sb3-contrib's TQC: a wrapper around the environment searches the nearest obstacle in plain Python."""
# expects: input_bound/rollout
# package: sb3_contrib

import math
import random

import gymnasium
import numpy as np
import torch
from planted import PLANTED, Clock
from sb3_contrib import TQC
from stable_baselines3.common.callbacks import BaseCallback

OBSTACLES = [(random.random(), random.random()) for _ in range(20_000)]


class Drone(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-2, 2, (3,))
    action_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.left = np.full(2, 0.5, "float32"), 100
        return np.append(self.at, 0.0).astype("float32"), {}

    def step(self, action):
        self.at = np.clip(self.at + 0.05 * action, 0, 1).astype("float32")
        self.left -= 1
        return np.append(self.at, 0.0).astype("float32"), -float(abs(self.at).sum()), self.left == 0, False, {}


class Radar(gymnasium.Wrapper):
    def step(self, action):
        seen, reward, ended, cut, facts = self.env.step(action)
        if PLANTED:
            seen[2] = self.nearest(float(seen[0]), float(seen[1]))
        return seen, reward, ended, cut, facts

    def nearest(self, x, y):
        return min(math.dist((x, y), obstacle) for obstacle in OBSTACLES)  # <- cause


class Count(BaseCallback):
    def __init__(self):
        super().__init__()
        self.clock = Clock()

    def _on_step(self):
        return self.num_timesteps <= 22 or self.clock.step()


def main():
    torch.set_num_threads(1)
    count = Count()
    agent = TQC(
        "MlpPolicy", Radar(Drone()), learning_starts=20, batch_size=64, device="cpu",
        policy_kwargs={"net_arch": [64, 64], "n_critics": 2},
    )  # fmt: skip
    agent.learn(10_000_000, callback=count)
    count.clock.tell()


if __name__ == "__main__":
    main()
