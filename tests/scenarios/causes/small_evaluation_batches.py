"""Evaluation on held-out data in batches of 2, beside training in batches of 128."""
# category: batch size
# expects: side_work/evaluation
# says: evaluate in larger batches

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from until import endless, options, small_model, steps


def evaluate(model, loader):
    with torch.no_grad():
        return sum(F.mse_loss(model(x), x).item() for (x,) in loader)  # <- cause


def main():
    args = options()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = endless(DataLoader(TensorDataset(torch.randn(4096, 256)), batch_size=128))
    held_out = DataLoader(TensorDataset(torch.randn(512, 256)), batch_size=128 if args.fixed else 2)
    for number in steps(args.seconds):
        (x,) = next(batches)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 8 == 7:
            evaluate(model, held_out)


if __name__ == "__main__":
    main()
