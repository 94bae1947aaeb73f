"""gpytorch: an exact Gaussian process whose posterior is sampled for a plot after every step."""
# expects: side_work
# package: gpytorch

import gpytorch
import torch
from planted import PLANTED, Clock


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def plot(model, likelihood):
    lines = []
    for value in torch.linspace(0, 1, 4000).tolist():
        lines.append(f"{value:.3f} {value * value:.6f} {value**3:.9f}")  # <- cause
    return "\n".join(lines)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    x = torch.linspace(0, 1, 120)
    y = torch.sin(6 * x) + 0.1 * torch.randn(120)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood)
    loss_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    while True:
        optimizer.zero_grad()
        loss = -loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        if PLANTED:
            plot(model, likelihood)
        if not clock.step():
            return clock.tell()


if __name__ == "__main__":
    main()
