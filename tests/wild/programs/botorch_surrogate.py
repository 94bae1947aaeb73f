"""botorch: a Gaussian process is fitted step by step; the Pareto front of all points is searched after each."""
# expects: side_work
# package: botorch

import warnings

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from planted import PLANTED, Clock


class Archive:
    """Points with two goals each."""

    def __init__(self, size):
        self.points = torch.rand(size, 2).tolist()

    def beats(self, one, other):
        return all(a <= b for a, b in zip(one, other, strict=True)) and one != other  # <- cause

    def front(self):
        return [p for p in self.points if not any(self.beats(other, p) for other in self.points)]  # <- cause


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock = Clock()
    x = torch.rand(300, 3, dtype=torch.double)
    y = (x.sum(-1, keepdim=True) * 3).sin()
    model = SingleTaskGP(x, y, likelihood=GaussianLikelihood(), covar_module=ScaleKernel(MaternKernel(ard_num_dims=3)))
    objective = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    archive = Archive(220)
    while True:
        loss = -objective(model(x), model.train_targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if PLANTED:
            archive.front()
        if not clock.step():
            return clock.tell()


if __name__ == "__main__":
    main()
