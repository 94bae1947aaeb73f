"""Something on another machine is asked, or sent something: by the loop, or by what makes its batches."""

import http.client
import io
import itertools
import socket
import urllib.request

import requests
import torch
import torch.nn.functional as F
from elsewhere import http_server, line_server
from laps import endless, options, small_model, steps, train
from torch.utils.data import DataLoader, Dataset, IterableDataset


# program: progress_posted
# category: calls to outside
# expects: side_work/network
def progress_posted(args):
    """The loss of every step is posted to a service; fixed: the mean of 500 steps."""
    train(args.seconds, Progress(http_server(0.01), 500 if args.fixed else 1).log)


class Progress:
    def __init__(self, address, every):
        self.session, self.url = requests.Session(), "http://{}:{}/runs/7".format(*address)
        self.losses, self.every = [], every

    def log(self, number, loss, model):
        self.losses.append(loss.item())
        if len(self.losses) == self.every:
            self.session.post(self.url, json={"loss": sum(self.losses) / self.every})  # <- cause
            self.losses.clear()


# program: quota_asked
# category: calls to outside
# expects: side_work/network
def quota_asked(args):
    """A licence server is asked before every step whether the run may go on; fixed: once."""
    licence = Licence(line_server(0.015))
    batches = endless(DataLoader(torch.randn(4096, 256), batch_size=64))
    train(args.seconds, lambda number, *_: (not args.fixed or not number) and not licence.is_granted(), batches)


class Licence:
    def __init__(self, address):
        self.there = socket.create_connection(address)
        self.file = self.there.makefile("rb")

    def is_granted(self):
        self.there.sendall(b"MAY 7\n")
        return len(self.file.read(1024)) > 0  # <- cause


# program: uploads_checkpoints
# category: uploads
# expects: side_work/network
def uploads_checkpoints(args):
    """Every hundredth step the weights are sent to object storage; fixed: when the training is over."""
    address = "http://{}:{}".format(*http_server(0.8))

    def after(number, loss, model):
        if number % 100 == 99 and not args.fixed:
            upload(model, address)

    train(args.seconds, after)


def upload(model, address):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    request = urllib.request.Request(f"{address}/weights.pt", data=file.getvalue(), method="PUT")
    urllib.request.urlopen(request).read()  # <- cause


# program: key_value_store
# category: remote reads
# expects: input_bound
# says: network
def key_value_store(args):
    """The loop itself asks a store on another machine for the rows of each batch, one by one."""
    store, memory = Store(line_server(0.001)), torch.randn(4096, 256)
    keys = (range(first, first + 16) for first in itertools.count(0, 16))
    row = (lambda key: memory[key % 4096]) if args.fixed else store.row
    train(args.seconds, batches=(torch.stack([row(key) for key in each]) for each in keys))


class Store:
    def __init__(self, address):
        self.there = socket.create_connection(address)
        self.file = self.there.makefile("rb")

    def row(self, key):
        self.there.sendall(f"GET {key}\n".encode())
        return torch.frombuffer(bytearray(self.file.read(1024)), dtype=torch.uint8)[:256].float()  # <- cause


# program: http_items
# category: remote reads
# expects: input_bound
# says: waiting for the network
def http_items(args):
    """Two workers ask a web server for each item."""
    address = "http://{}:{}".format(*http_server(0.02))
    items = CopiedItems(address) if args.fixed else Items(address)
    train_on(args, endless(DataLoader(items, batch_size=32, num_workers=2)), backward_passes=16)


class Items(Dataset):
    def __init__(self, address):
        self.address = address

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        with urllib.request.urlopen(f"{self.address}/{index}") as answer:  # <- cause
            return torch.frombuffer(bytearray(answer.read()), dtype=torch.uint8)[:256].float()


class CopiedItems(Items):
    def __getitem__(self, index):
        return torch.zeros(256)


# program: shards_streamed
# category: remote reads
# expects: input_bound
# says: network
def shards_streamed(args):
    """A worker streams shards from object storage, row by row as they come."""
    address = http_server(0.005)
    shards = CopiedShards(address) if args.fixed else Shards(address)
    train_on(args, iter(DataLoader(shards, batch_size=64, num_workers=1)), backward_passes=8)


class Shards(IterableDataset):
    def __init__(self, address):
        self.address = address

    def __iter__(self):
        storage = http.client.HTTPConnection(*self.address)
        while True:
            storage.request("GET", "/shard")
            shard = bytearray(storage.getresponse().read())  # <- cause
            yield from torch.frombuffer(shard, dtype=torch.uint8).float().reshape(4, 256)


class CopiedShards(Shards):
    def __iter__(self):
        while True:
            yield torch.zeros(256)


def train_on(args, batches, backward_passes):
    """So much computation that only what makes the batches is slow."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in steps(args.seconds):
        x = next(batches)
        optimizer.zero_grad()
        for _ in range(backward_passes):
            F.mse_loss(model(x), x).backward()
        optimizer.step()


if __name__ == "__main__":
    args = options()
    globals()[args.program](args)
