"""Evaluation on held-out data in batches of 2, beside training in batches of 128."""
# category: batch size
# expects: side_work/evaluation
# says: evaluate in larger batches

import torch
import torch.nn.functional as F
from laps import endless, options, train
from torch.utils.data import DataLoader


def evaluate(model, loader):
    with torch.no_grad():
        return sum(F.mse_loss(model(x), x).item() for x in loader)  # <- cause


def main():
    args = options()
    held_out = DataLoader(torch.randn(512, 256), batch_size=128 if args.fixed else 2)

    def after(number, loss, model):
        if number % 8 == 7:
            evaluate(model, held_out)

    train(args.seconds, after, endless(DataLoader(torch.randn(4096, 256), batch_size=128)))


if __name__ == "__main__":
    main()
