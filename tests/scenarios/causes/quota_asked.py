"""A licence server is asked before every step whether the run may go on; fixed: once."""
# category: calls to outside
# expects: side_work/network

import socket

import torch
from elsewhere import line_server
from plain import train
from torch.utils.data import DataLoader
from until import endless, options


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
    batches = endless(DataLoader(torch.randn(4096, 256), batch_size=64))
    train(args.seconds, lambda number, *_: (not args.fixed or not number) and not licence.is_granted(), batches)


if __name__ == "__main__":
    main()
