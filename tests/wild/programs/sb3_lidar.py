"""Trains a DQN agent with stable-baselines3; planted: its environment casts lidar rays in nested loops each step."""

# expects: input_bound/rollout
# package: stable_baselines3
import math

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from planted import PLANTED, Clock
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

RAYS = 90
OBSTACLES = 40
RADIUS = 0.4
REACH = 6.0
TURNS = (-0.3, 0.0, 0.3)


def scan_loop(x, y, heading, centers):
    position = np.array([x, y])
    ranges = []
    for k in range(RAYS):
        angle = heading + 2 * math.pi * k / RAYS
        direction = np.array([math.cos(angle), math.sin(angle)])
        nearest = REACH
        for center in centers:
            offset = center - position  # <- cause
            along = offset @ direction  # <- cause
            gap = offset @ offset - along**2  # <- cause
            if along > 0 and gap < RADIUS**2:  # <- cause
                nearest = min(nearest, along - math.sqrt(RADIUS**2 - gap))
        ranges.append(max(nearest, 0.0))
    return np.array(ranges, dtype=np.float32) / REACH


def scan(x, y, heading, centers):
    angles = heading + 2 * np.pi * np.arange(RAYS) / RAYS
    offsets = centers - np.array([x, y])
    along = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ offsets.T
    gap = (offsets**2).sum(axis=1) - along**2
    hit = (along > 0) & (gap < RADIUS**2)
    ranges = np.where(hit, along - np.sqrt(np.maximum(RADIUS**2 - gap, 0)), REACH).min(axis=1)
    return (ranges.clip(0, REACH) / REACH).astype(np.float32)


class LidarField(gym.Env):
    def __init__(self):
        self.observation_space = spaces.Box(0.0, 1.0, (RAYS,), np.float32)
        self.action_space = spaces.Discrete(len(TURNS))

    def observe(self):
        if PLANTED:
            return scan_loop(self.x, self.y, self.heading, self.centers)
        return scan(self.x, self.y, self.heading, self.centers)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.centers = self.np_random.uniform(-10, 10, (OBSTACLES, 2))
        self.x = self.y = 0.0
        self.heading = self.np_random.uniform(0, 2 * np.pi)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.heading += TURNS[int(action)]
        self.x += 0.2 * math.cos(self.heading)
        self.y += 0.2 * math.sin(self.heading)
        self.steps += 1
        seen = self.observe()
        crashed = bool(seen.min() < 0.02)
        return seen, -5.0 if crashed else 0.1, crashed, self.steps >= 200, {}


class StopOnClock(BaseCallback):
    running = True

    def _on_step(self):
        return self.running


def main():
    torch.set_num_threads(1)
    model = DQN(
        "MlpPolicy",
        LidarField(),
        batch_size=256,
        learning_starts=64,
        buffer_size=20_000,
        train_freq=1,
        gradient_steps=2,
        policy_kwargs={"net_arch": [512, 256]},
        device="cpu",
        seed=0,
    )
    stop = StopOnClock()
    clock = Clock()

    def after_update(optimizer, args, kwargs):
        stop.running = clock.step()

    model.policy.optimizer.register_step_post_hook(after_update)
    model.learn(total_timesteps=10_000_000, callback=stop)
    clock.tell()


if __name__ == "__main__":
    main()
