"""sbi's neural posterior estimation: the function that collates simulations adds noise to them value by value."""
# expects: input_bound
# package: sbi

import random

import torch
from planted import PLANTED, Clock
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn
from sbi.utils import BoxUniform
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import default_collate

WIDTH = 60
CLOCK = Clock()


class Done(Exception):
    pass


def count(*_):
    if not CLOCK.step():
        raise Done


def collate(items):
    parameters, observed, masks = default_collate(items)
    return parameters, noisy(observed) if PLANTED else observed, masks


def noisy(observed):
    return torch.tensor([[value + random.gauss(0.0, 0.1) for value in row] for row in observed.tolist()])  # <- cause


def main():
    torch.set_num_threads(1)
    register_optimizer_step_post_hook(count)
    prior = BoxUniform(-torch.ones(4), torch.ones(4))
    parameters = prior.sample((8000,))
    observed = torch.sin(parameters @ torch.randn(4, WIDTH)) + 0.1 * torch.randn(8000, WIDTH)
    inference = NPE(prior, density_estimator=posterior_nn("maf", hidden_features=160), show_progress_bars=False)
    inference.append_simulations(parameters, observed)
    try:
        inference.train(
            training_batch_size=200, max_num_epochs=100_000, stop_after_epochs=100_000,
            dataloader_kwargs={"collate_fn": collate},
        )  # fmt: skip
    except Done:
        pass
    CLOCK.tell()


if __name__ == "__main__":
    main()
