"""PINA solves a Poisson equation: a callback checks the solution against finite differences after every batch."""
# expects: side_work
# package: pina

import lightning
import torch
from pina import LabelTensor, Trainer
from pina.model import FeedForward
from pina.problem.zoo import Poisson2DSquareProblem
from pina.solver import PINN
from planted import PLANTED, Clock


class Residual(lightning.Callback):
    def __init__(self):
        self.clock = Clock()
        axis = torch.linspace(0, 1, 20)
        self.grid = LabelTensor(torch.cartesian_prod(axis, axis), ["x", "y"])

    def on_train_batch_end(self, trainer, solver, *_):
        if PLANTED:
            solver.worst = self.worst(solver.forward(self.grid).detach().reshape(20, 20).tolist())
        trainer.should_stop = not self.clock.step()

    def worst(self, u):
        found = 0.0
        for _ in range(40):
            for i in range(1, 19):
                for j in range(1, 19):
                    bend = u[i - 1][j] + u[i + 1][j] + u[i][j - 1] + u[i][j + 1] - 4 * u[i][j]  # <- cause
                    found = max(found, abs(bend))  # <- cause
        return found


def main():
    torch.set_num_threads(1)
    problem = Poisson2DSquareProblem()
    problem.discretise_domain(15, "random")
    residual = Residual()
    trainer = Trainer(
        PINN(problem, FeedForward(input_dimensions=2, output_dimensions=1, inner_size=48, n_layers=3)),
        max_epochs=1_000_000, accelerator="cpu", callbacks=[residual], logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.train()
    residual.clock.tell()


if __name__ == "__main__":
    main()
