"""A licence server is asked before every step whether the run may go on; fixed: once."""
# category: calls to outside
# expects: side_work/network

import socket

import torch
import torch.nn.functional as F
from elsewhere import line_server
from torch.utils.data import DataLoader, TensorDataset
from until import endless, options, small_model, steps


class Licence:
    def __init__(self, address):
        self.there = socket.create_connection(address)
        self.file = self.there.makefile("rb")

    def is_granted(self):
        self.there.sendall(b"MAY 7\n")
        return len(self.file.read(1024)) > 0  # <- cause


def main():
    args = options()
    licence = Licence(line_server(0.015))
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = endless(DataLoader(TensorDataset(torch.randn(4096, 256)), batch_size=64))
    for number in steps(args.seconds):
        (x,) = next(batches)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (not args.fixed or not number) and not licence.is_granted():
            break


if __name__ == "__main__":
    main()
