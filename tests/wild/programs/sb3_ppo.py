"""stable-baselines3's PPO: the environment simulates its physics in plain Python."""
# expects: input_bound/rollout
# package: stable_baselines3

import gymnasium
import numpy as np
from planted import PLANTED, Clock
from stable_baselines3 import PPO


class Pendulum(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (8,))
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 200
        return np.zeros(8, "float32"), {}

    def step(self, action):
        self.left -= 1
        angle = self.simulate(float(action)) if PLANTED else 0.1
        return np.full(8, angle, "float32"), 1.0, self.left == 0, False, {}

    def simulate(self, force):
        angle, speed = 0.1, 0.0
        for _ in range(12000):
            speed += (force - 9.81 * angle) * 1e-4  # <- cause
            angle += speed * 1e-4  # <- cause
        return angle


class Stop(Exception):
    pass


def main():
    clock = Clock()
    agent = PPO("MlpPolicy", Pendulum(), n_steps=256, batch_size=64, n_epochs=4, device="cpu")
    optimizer_step = agent.policy.optimizer.step

    def counted(*args, **kwargs):
        done = optimizer_step(*args, **kwargs)
        if not clock.step():
            raise Stop
        return done

    agent.policy.optimizer.step = counted
    try:
        agent.learn(10_000_000)
    except Stop:
        pass
    clock.report()


if __name__ == "__main__":
    main()
