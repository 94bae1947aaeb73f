"""The loop itself asks a store on another machine for the rows of each batch, one by one."""
# category: remote reads
# expects: input_bound
# says: network

import itertools
import socket

import torch
from elsewhere import line_server
from plain import train
from until import options


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
    keys = (range(first, first + 16) for first in itertools.count(0, 16))
    row = (lambda key: memory[key % 4096]) if args.fixed else store.row
    train(args.seconds, batches=(torch.stack([row(key) for key in each]) for each in keys))


if __name__ == "__main__":
    main()
