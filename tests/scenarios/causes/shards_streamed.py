"""A worker streams shards from object storage, row by row as they come."""
# category: remote reads
# expects: input_bound
# says: network

import http.client

import torch
import torch.nn.functional as F
from elsewhere import http_server
from torch.utils.data import DataLoader, IterableDataset
from until import options, small_model, steps


class Shards(IterableDataset):
    def __init__(self, address):
        self.address = address

    def __iter__(self):
        storage = http.client.HTTPConnection(*self.address)
        while True:
            storage.request("GET", "/shard")
            shard = bytearray(storage.getresponse().read())  # <- cause
            yield from torch.frombuffer(shard, dtype=torch.uint8).float().reshape(4, 256)


class Copied(Shards):
    def __iter__(self):
        while True:
            yield torch.zeros(256)


def main():
    args = options()
    address = http_server(0.005)
    shards = Copied(address) if args.fixed else Shards(address)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(shards, batch_size=64, num_workers=1))
    for _ in steps(args.seconds):
        x = next(batches)
        optimizer.zero_grad()
        for _ in range(8):
            F.mse_loss(model(x), x).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
