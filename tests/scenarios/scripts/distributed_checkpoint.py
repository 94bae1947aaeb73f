"""torch.distributed.checkpoint saves every few steps while the training waits; fixed: seldom."""
# category: checkpoints
# expects: side_work/checkpoint

import tempfile
import warnings

import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from laps import options, small_model, steps


class Run:
    def __init__(self, every):
        self.model, self.every = small_model(1024, 6), every
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.folder = tempfile.mkdtemp()

    def train(self, x):
        loss = F.mse_loss(self.model(x), x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def keep(self, number):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        dcp.save(state, checkpoint_id=f"{self.folder}/{number % 2}")  # <- cause


def main():
    args = options()
    warnings.simplefilter("ignore")  # one process is meant
    run = Run(500 if args.fixed else 4)
    for number in steps(args.seconds):
        run.train(torch.randn(128, 1024))
        if number % run.every == run.every - 1:
            run.keep(number)


if __name__ == "__main__":
    main()
