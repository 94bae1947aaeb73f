"""Trains a causal convolution net to forecast volatility; planted: moving averages by a Python loop over days."""

# expects: compute_bound_cpu/python
# package: torch
from dataclasses import dataclass

import torch
from planted import PLANTED, Clock
from torch import nn


@dataclass
class Config:
    assets: int = 200
    days: int = 4000
    lookback: int = 252
    batch: int = 12
    half_lives: tuple = (3, 10, 21, 63, 126)
    channels: int = 16
    levels: int = 4
    lr: float = 2e-3


def simulate_returns(cfg: Config):
    """A panel of daily returns whose variance clusters, as by GARCH(1, 1)."""
    generator = torch.Generator().manual_seed(7)
    shocks = torch.randn(cfg.assets, cfg.days, generator=generator)
    variance = torch.full((cfg.assets,), 1e-4)
    returns = torch.empty_like(shocks)
    for day in range(cfg.days):
        returns[:, day] = variance.sqrt() * shocks[:, day]
        variance = 2e-6 + 0.07 * returns[:, day] ** 2 + 0.91 * variance
    return returns


class EwmaLoop(nn.Module):
    """Exponentially weighted variance at several half-lives."""

    def __init__(self, half_lives, lookback):
        super().__init__()
        self.register_buffer("decay", torch.tensor([0.5 ** (1 / h) for h in half_lives]))

    def forward(self, squares):
        variance = torch.zeros(len(squares), len(self.decay))
        averages = []
        for day in range(squares.shape[1]):
            variance = self.decay * variance + (1 - self.decay) * squares[:, day, None]  # <- cause
            averages.append(variance)
        return torch.stack(averages, dim=2)


class Ewma(EwmaLoop):
    def __init__(self, half_lives, lookback):
        super().__init__(half_lives, lookback)
        day = torch.arange(lookback)
        lag = day[None, :] - day[:, None]
        decay = self.decay[:, None, None]
        self.register_buffer("kernel", (1 - decay) * decay ** lag.clamp(min=0) * (lag >= 0))

    def forward(self, squares):
        return torch.einsum("bs,hst->bht", squares, self.kernel)


class CausalBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(channels, 2 * channels, 3, dilation=dilation)
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x):
        a, b = self.conv(self.pad(x)).chunk(2, dim=1)
        return x + self.norm(torch.tanh(a) * torch.sigmoid(b))


class VolNet(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.ewma = (EwmaLoop if PLANTED else Ewma)(cfg.half_lives, cfg.lookback)
        self.inp = nn.Conv1d(len(cfg.half_lives) + 1, cfg.channels, 1)
        self.blocks = nn.Sequential(*(CausalBlock(cfg.channels, 2**level) for level in range(cfg.levels)))
        self.out = nn.Linear(cfg.channels, 1)

    def forward(self, returns):
        variances = (self.ewma(returns**2) + 1e-8).log()
        x = torch.cat([variances, 50 * returns[:, None]], dim=1)
        return self.out(self.blocks(self.inp(x))[:, :, -1]).squeeze(1)


def windows(returns, cfg: Config):
    """Endless batches: random windows, and the logarithm of the next day's squared return."""
    unfolded = returns.unfold(1, cfg.lookback, 1)
    while True:
        asset = torch.randint(cfg.assets, (cfg.batch,))
        start = torch.randint(cfg.days - cfg.lookback - 1, (cfg.batch,))
        following = returns[asset, start + cfg.lookback]
        yield unfolded[asset, start], following.pow(2).clamp(min=1e-8).log()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cfg = Config()
    model = VolNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    criterion = nn.SmoothL1Loss()

    clock = Clock()
    for returns, target in windows(simulate_returns(cfg), cfg):
        loss = criterion(model(returns), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
