"""Each distribution checks its parameters and its values, and the model makes many of them."""
# expects: slow_setting/validation

from itertools import repeat

import torch
from laps import fit, options
from torch import nn
from torch.distributions import Categorical, Distribution, Normal, kl_divergence


class StateSpace(nn.Module):
    def __init__(self):
        super().__init__()
        self.step, self.out = nn.Linear(16, 32), nn.Linear(16, 6)

    def forward(self, x, actions):
        bound, state = 0.0, x
        for action in actions.unbind(1):
            mean, scale = torch.tanh(self.step(state)).chunk(2, 1)
            posterior = Normal(mean, scale.exp())
            state = torch.tanh(posterior.rsample())
            bound = bound - kl_divergence(posterior, Normal(0.0, 1.0)).sum()
            bound = bound + Categorical(logits=self.out(state)).log_prob(action).sum()  # <- cause
        return -bound / len(x)


def main():
    args = options()
    if args.fixed:
        Distribution.set_default_validate_args(False)
    model = StateSpace()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    fit(args, optimizer, repeat(()), lambda: model(torch.randn(8, 16), torch.randint(6, (8, 20))))


if __name__ == "__main__":
    main()
