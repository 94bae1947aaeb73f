"""The loop itself asks a store on another machine for the rows of each batch, one by one."""
# category: remote reads
# expects: input_bound
# says: network

import socket

import torch
import torch.nn.functional as F
from elsewhere import line_server
from until import options, small_model, steps


class Store:
    def __init__(self, address):
        self.there = socket.create_connection(address)
        self.file = self.there.makefile("rb")

    def row(self, key):
        self.there.sendall(f"GET {key}\n".encode())
        return torch.frombuffer(bytearray(self.file.read(1024)), dtype=torch.uint8)[:256].float()  # <- cause


def main():
    args = options()
    store, memory = Store(line_server(0.001)), torch.randn(4096, 256)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in steps(args.seconds):
        keys = range(16 * number, 16 * (number + 1))
        x = memory[[key % 4096 for key in keys]] if args.fixed else torch.stack([store.row(key) for key in keys])
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
