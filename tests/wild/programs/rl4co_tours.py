"""rl4co learns tours: an environment of one's own scores each tour city by city in plain Python."""
# expects: compute_bound_cpu/python
# package: rl4co

import math

import torch
from lightning.pytorch import Callback, Trainer
from planted import PLANTED, Clock
from rl4co.envs import TSPEnv
from rl4co.models import REINFORCE, AttentionModelPolicy

CLOCK = Clock()


class ByRoad(TSPEnv):
    """Distances along a grid of roads."""

    def _get_reward(self, td, actions):
        return self.by_road(td, actions) if PLANTED else super()._get_reward(td, actions)

    def by_road(self, td, actions):
        scores = []
        for places, tour in zip(td["locs"].tolist(), actions.tolist(), strict=True):
            there = [places[city] for city in tour]
            scores.append(-sum(map(self.road, there, there[1:] + there[:1])))
        return torch.tensor(scores)

    def road(self, a, b):
        blocks = 40
        length = 0.0
        for i in range(blocks):
            x, y = a[0] + (b[0] - a[0]) * i / blocks, a[1] + (b[1] - a[1]) * i / blocks  # <- cause
            length += math.hypot(math.sin(9 * x), math.cos(9 * y)) / blocks  # <- cause
        return length


class Count(Callback):
    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = not CLOCK.step()


def main():
    torch.set_num_threads(1)
    env = ByRoad(generator_params={"num_loc": 20})
    policy = AttentionModelPolicy(env_name="tsp", embed_dim=64, num_encoder_layers=2, num_heads=4)
    model = REINFORCE(
        env, policy, baseline="exponential", batch_size=64, train_data_size=64_000, val_data_size=64, test_data_size=64
    )
    trainer = Trainer(
        max_epochs=1000, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[Count()], limit_val_batches=0, min_epochs=0, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(model)
    CLOCK.tell()


if __name__ == "__main__":
    main()
