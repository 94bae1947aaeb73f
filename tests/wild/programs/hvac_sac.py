"""Trains SAC for a building's heating with stable-baselines3; planted: each draw weighs the whole replay buffer."""

# expects: input_bound/hand_rolled_loader
# package: stable_baselines3
import gymnasium as gym
import numpy as np
import torch
from planted import PLANTED, Clock
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback

ZONES = 8
LOGGED = 400_000
LEARNING_STARTS = 50


class Building(gym.Env):
    """A linear thermal model; an action is the heating power of each zone."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-10, 10, (ZONES + 3,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (ZONES,), np.float32)
        rng = np.random.default_rng(0)
        self.leak = rng.uniform(0.02, 0.05, ZONES)
        flow = np.eye(ZONES) * 0.95 + 0.02 * (rng.random((ZONES, ZONES)) < 0.3)
        self.flow = flow / (flow.sum(axis=1) + self.leak)[:, None]

    def observe(self):
        hour = 2 * np.pi * self.t / 96
        return np.append(self.temperature, [self.outside, np.sin(hour), np.cos(hour)]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.outside = 0, self.np_random.normal(-1.5, 0.5)
        self.temperature = self.np_random.normal(0, 0.5, ZONES)
        return self.observe(), {}

    def step(self, action):
        self.temperature = self.flow @ self.temperature + self.leak * self.outside + 0.1 * action
        self.outside += 0.05 * self.np_random.normal()
        self.t += 1
        reward = -np.square(self.temperature).mean() - 0.05 * np.abs(action).mean()
        return self.observe(), float(reward), False, self.t >= 96, {}


class PrioritisedBuffer(ReplayBuffer):
    """Draws transitions in proportion to a power of their surprise."""

    def __init__(self, *args, alpha=0.6, refresh=500, **kwargs):
        super().__init__(*args, **kwargs)
        self.alpha, self.refresh = alpha, refresh
        self.surprise = np.full(self.buffer_size, 1e-3)
        self.draws = 0

    def add(self, obs, next_obs, action, reward, done, infos):
        self.surprise[self.pos] = abs(float(reward[0])) + 1e-3
        super().add(obs, next_obs, action, reward, done, infos)

    def load_log(self, count, rng):
        """Transitions that the old thermostat recorded."""
        self.observations[:count] = rng.normal(0, 1, self.observations[:count].shape)
        self.next_observations[:count] = self.observations[:count] + rng.normal(0, 0.1, self.observations[:count].shape)
        self.actions[:count] = rng.uniform(-1, 1, self.actions[:count].shape)
        self.rewards[:count] = -np.square(self.next_observations[:count, :, :ZONES]).mean(axis=-1)
        self.surprise[:count] = np.abs(self.rewards[:count, 0]) + 1e-3
        self.pos = count

    def draw(self, batch_size):
        weights = self.surprise[: self.size()] ** self.alpha  # <- cause
        return np.random.choice(len(weights), batch_size, p=weights / weights.sum())  # <- cause

    def draw_cached(self, batch_size):
        if self.draws % self.refresh == 0:
            self.cumulated = np.cumsum(self.surprise[: self.size()] ** self.alpha)
        self.draws += 1
        return np.searchsorted(self.cumulated, np.random.random(batch_size) * self.cumulated[-1])

    def sample(self, batch_size, env=None):
        rows = self.draw(batch_size) if PLANTED else self.draw_cached(batch_size)
        return self._get_samples(rows, env=env)


class StopOnClock(BaseCallback):
    def __init__(self):
        super().__init__()
        self.clock = Clock()

    def _on_step(self):
        return self.num_timesteps <= LEARNING_STARTS + 1 or self.clock.step()


def main():
    torch.set_num_threads(1)
    model = SAC(
        "MlpPolicy",
        Building(),
        buffer_size=LOGGED + 100_000,
        learning_starts=LEARNING_STARTS,
        batch_size=256,
        policy_kwargs={"net_arch": [192, 192]},
        replay_buffer_class=PrioritisedBuffer,
        device="cpu",
        seed=0,
    )
    model.replay_buffer.load_log(LOGGED, np.random.default_rng(0))
    stop = StopOnClock()
    model.learn(total_timesteps=10_000_000, callback=stop)
    stop.clock.tell()


if __name__ == "__main__":
    main()
