"""Gradients of four small batches are accumulated, clipped, and applied."""
# healthy

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 4


def main():
    args = options()
    torch.set_num_threads(2)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    head = nn.Linear(64, 4)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    data = DataLoader(TensorDataset(torch.randn(2000, 32, 64), torch.randint(4, (2000,))), batch_size=16)
    watch = Laps(args.seconds)
    going = True
    while going:
        for number, (x, y) in enumerate(data, 1):
            watch.lap("data")
            loss = nn.functional.cross_entropy(head(encoder(x).mean(1)), y) / ACCUMULATE
            watch.lap("forward")
            loss.backward()
            watch.lap("backward")
            if number % ACCUMULATE == 0:
                nn.utils.clip_grad_norm_(parameters, 1.0)
                watch.lap("other")
                optimizer.step()
                optimizer.zero_grad()
                watch.lap("optimizer")
                going = watch.step()
                if not going:
                    break
    watch.tell()


main()
