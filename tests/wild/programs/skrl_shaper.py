"""skrl's DQN: the environment ranks its whole history in plain Python for the reward."""
# expects: input_bound/rollout
# package: skrl

import gymnasium
import numpy as np
import skrl
import torch
from planted import PLANTED, Clock
from skrl.agents.torch.dqn import DQN
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn


class Stop(Exception):
    pass


class Market(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (6,))
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.history = np.random.normal(size=600).tolist()
        self.left = 300
        return np.zeros(6, "float32"), {}

    def step(self, action):
        self.history = [*self.history[1:], float(np.random.normal(0.01 * int(np.asarray(action).item())))]
        self.left -= 1
        reward = self.rank() if PLANTED else self.history[-1]
        return np.asarray(self.history[-6:], "float32"), reward, self.left == 0, False, {}

    def rank(self):
        total = 0
        for i, value in enumerate(self.history[-120:]):
            total += sum(value > other for other in self.history[i : i + 200])  # <- cause
        return total / 24_000


class Critic(DeterministicMixin, Model):
    def __init__(self, seen, actions):
        Model.__init__(self, observation_space=seen, action_space=actions, device="cpu")
        DeterministicMixin.__init__(self)
        self.layers = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))

    def compute(self, inputs, role):
        return self.layers(inputs["observations"]), {}


def main():
    torch.set_num_threads(1)
    skrl.logger.setLevel("ERROR")
    clock = Clock()
    env = wrap_env(Market(), verbose=False)
    models = {name: Critic(env.observation_space, env.action_space) for name in ("q_network", "target_q_network")}
    agent = DQN(
        models=models, memory=RandomMemory(memory_size=5000, device="cpu"), observation_space=env.observation_space,
        action_space=env.action_space, device="cpu",
        cfg={
            "learning_starts": 80, "random_timesteps": 0,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
    )  # fmt: skip
    optimizer_step = agent.optimizer.step

    def counted(*args, **kwargs):
        done = optimizer_step(*args, **kwargs)
        if not clock.step():
            raise Stop
        return done

    agent.optimizer.step = counted
    try:
        SequentialTrainer(
            env=env, agents=agent, cfg={"timesteps": 10_000_000, "disable_progressbar": True, "headless": True}
        ).train()
    except Stop:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
