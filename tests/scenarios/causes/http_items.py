"""Two workers ask a web server for each item."""
# category: remote reads
# expects: input_bound
# says: waiting for the network

import urllib.request

import torch
import torch.nn.functional as F
from elsewhere import http_server
from torch.utils.data import DataLoader, Dataset
from until import endless, options, small_model, steps


class Items(Dataset):
    def __init__(self, address):
        self.address = address

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        with urllib.request.urlopen(f"{self.address}/{index}") as answer:  # <- cause
            return torch.frombuffer(bytearray(answer.read()), dtype=torch.uint8)[:256].float()


class Copied(Items):
    def __getitem__(self, index):
        return torch.zeros(256)


def main():
    args = options()
    address = "http://{}:{}".format(*http_server(0.02))
    items = Copied(address) if args.fixed else Items(address)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = endless(DataLoader(items, batch_size=32, num_workers=2))
    for _ in steps(args.seconds):
        x = next(batches)
        for _ in range(16):
            loss = F.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
