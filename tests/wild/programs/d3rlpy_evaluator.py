"""d3rlpy learns from recorded episodes: an evaluator of its own plays whole games after every few updates."""
# expects: side_work
# package: d3rlpy

import d3rlpy
import gymnasium
import numpy as np
import torch
from planted import PLANTED, Clock


class Played:
    """As d3rlpy's EnvironmentEvaluator, with more games."""

    def __init__(self, games):
        self.env, self.games = gymnasium.make("CartPole-v1"), games

    def __call__(self, algo, dataset):
        return float(np.mean([self.play(algo) for _ in range(self.games)]))

    def play(self, algo):
        observation, _ = self.env.reset()
        total, over = 0.0, False
        while not over:
            action = algo.predict(np.expand_dims(observation, axis=0))[0]  # <- cause
            observation, reward, terminated, truncated, _ = self.env.step(action)  # <- cause
            total, over = total + float(reward), terminated or truncated
        return total


def recorded(count):
    chance = np.random.default_rng(0)
    return d3rlpy.dataset.MDPDataset(
        observations=chance.normal(size=(count, 4)).astype(np.float32),
        actions=chance.integers(0, 2, (count, 1)),
        rewards=chance.normal(size=(count, 1)).astype(np.float32),
        terminals=(np.arange(count) % 100 == 99).astype(np.float32),
    )


class Done(Exception):
    pass


def main():
    torch.set_num_threads(1)
    clock = Clock()

    def count(*_):
        if not clock.step():
            raise Done

    algo = d3rlpy.algos.DiscreteCQLConfig(
        batch_size=256, encoder_factory=d3rlpy.models.VectorEncoderFactory([768, 768])
    ).create(device="cpu")
    try:
        algo.fit(
            recorded(10_000), n_steps=10**7, n_steps_per_epoch=10 if PLANTED else 400, callback=count,
            evaluators={"score": Played(60 if PLANTED else 2)}, show_progress=False, save_interval=10**6,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )  # fmt: skip
    except Done:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
