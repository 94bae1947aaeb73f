"""tianshou's off-policy trainer: a wrapper of the environments draws each observation pixel by pixel."""
# expects: input_bound/rollout
# package: tianshou

import gymnasium
import numpy as np
import tianshou
import torch
from planted import PLANTED, Clock
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

SIDE, SEEN = 48, 12


class Drawn(gymnasium.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (SEEN * SEEN,), np.float32)

    def observation(self, observation):
        return self.draw(observation) if PLANTED else np.resize(observation, SEEN * SEEN).astype(np.float32)

    def draw(self, observation):
        position, _, angle, _ = observation
        image = np.zeros((SIDE, SIDE), np.float32)
        for row in range(SIDE):
            for column in range(SIDE):
                across = (column / SIDE - 0.5) * 4.8 - position - np.sin(angle) * (SIDE - row) / SIDE  # <- cause
                image[row, column] = np.exp(-across * across)  # <- cause
        return image.reshape(SEEN, SIDE // SEEN, SEEN, SIDE // SEEN).mean((1, 3)).ravel()


class Done(Exception):
    pass


def environment():
    return Drawn(gymnasium.make("CartPole-v1"))


def main():
    torch.set_num_threads(1)
    clock = Clock()

    def count(*_):
        if not clock.step():
            raise Done

    envs = tianshou.env.DummyVectorEnv([environment for _ in range(4)])
    net = Net(state_shape=(SEEN * SEEN,), action_shape=2, hidden_sizes=[1024, 1024])
    policy = DiscreteQLearningPolicy(
        model=net, action_space=gymnasium.spaces.Discrete(2), eps_training=0.1, eps_inference=0.05
    )
    algorithm = tianshou.algorithm.DQN(
        policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.9, n_step_return_horizon=3, target_update_freq=320
    )
    collector = tianshou.data.Collector(
        algorithm, envs, tianshou.data.VectorReplayBuffer(20_000, 4), exploration_noise=True
    )
    collector.reset()
    algorithm.optim._optim.register_step_post_hook(count)
    try:
        algorithm.run_training(
            OffPolicyTrainerParams(
                training_collector=collector, max_epochs=1000, epoch_num_steps=10_000, collection_step_num_env_steps=32,
                update_step_num_gradient_steps_per_sample=1 / 16, batch_size=512, show_progress=False, verbose=False,
            )
        )  # fmt: skip
    except Done:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
