"""webdataset: samples of a tar shard are decoded by one worker, whose map() parses numbers out of text."""
# expects: input_bound
# package: webdataset

import io
import tarfile
import tempfile
from pathlib import Path

import torch
import webdataset
from planted import PLANTED, Clock
from torch import nn

WIDTH = 256


def shard(folder):
    path = Path(folder) / "rows-000.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(300):
            text = ",".join(f"{(number * k) % 97 / 97:.5f}" for k in range(WIDTH)).encode()
            for name, data in ((f"{number:05d}.csv", text), (f"{number:05d}.cls", str(number % 5).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return str(path)


def parse(sample):
    text = sample["csv"].decode()
    values = [float(word) for word in text.split(",")]
    if PLANTED:
        values = smooth(values)
    return torch.tensor(values), int(sample["cls"])


def smooth(values):
    for _ in range(30):
        values = [0.5 * a + 0.5 * b for a, b in zip(values, values[1:] + values[:1], strict=True)]  # <- cause
    return values


def main():
    torch.set_num_threads(1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        rows = (
            webdataset.WebDataset(shard(folder), shardshuffle=False, empty_check=False).map(parse).batched(32).repeat()
        )
        loader = webdataset.WebLoader(rows, batch_size=None, num_workers=1)
        model = nn.Sequential(nn.Linear(WIDTH, 2500), nn.ReLU(), nn.Linear(2500, 2500), nn.ReLU(), nn.Linear(2500, 5))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for values, labels in loader:
            loss = nn.functional.cross_entropy(model(values), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not clock.step():
                break
        del loader
    clock.tell()


if __name__ == "__main__":
    main()
