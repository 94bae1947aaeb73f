"""The whole validation set after every tenth step."""
# expects: side_work/evaluation

import torch
from laps import endless, fit, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()  # <- cause
    model.train()
    return right


def main():
    args = options()
    train = TensorDataset(torch.randn(30_000, 128), torch.randint(10, (30_000,)))
    valid = TensorDataset(torch.randn(16_000, 128), torch.randint(10, (16_000,)))
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    valid_loader = DataLoader(valid, batch_size=1000)
    batches = endless(DataLoader(train, batch_size=256, shuffle=True))

    def after(step):
        if step % (400 if args.fixed else 10) == 0:
            validate(model, valid_loader)

    fit(args, optimizer, batches, lambda x, y: nn.functional.cross_entropy(model(x), y), after, "eval")


main()
