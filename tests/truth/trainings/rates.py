"""A training that counts its own samples and tokens a second, and prints them as JSON.

Under ``torchrun`` each rank makes samples of its own, and rank 0 prints the sums.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import tuimon

BATCH, WORDS = 16, 1000
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Texts(Dataset):
    """Texts of 10 to 60 words."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.randint(1, WORDS, (10 + index * 31 % 51,))


def padded(texts):
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


class Model(nn.Module):
    """Predicts the first word of a text."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.out = nn.Linear(32, WORDS)

    def forward(self, ids):
        return nn.functional.cross_entropy(self.out(self.words(ids).mean(1)), ids[:, 0])


def by_hand():
    """Batches of 10 to 40 samples without a DataLoader."""
    while True:
        for size in range(10, 41):
            ids = torch.randint(1, WORDS, (size, 20))
            yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def train(options, rank):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = DistributedDataParallel(Model()) if RANKS > 1 else Model()
    optimizer = torch.optim.Adam(model.parameters())
    sums = torch.zeros(2, dtype=torch.float64)
    batches = by_hand() if options.by_hand else DataLoader(Texts(), BATCH, collate_fn=padded)
    begun, ending = time.perf_counter(), torch.zeros(1)
    for number, batch in enumerate(batches, 1):
        (model(batch["input_ids"]) / options.accumulate).backward()
        sums += torch.tensor([len(batch["input_ids"]), batch["attention_mask"].sum()])
        if number % options.accumulate:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if options.by_hand:
            tuimon.step(samples=len(batch["input_ids"]), tokens=batch["input_ids"].numel())
        time.sleep(0.01)
        ending.fill_(time.perf_counter() - begun > options.seconds)
        if RANKS > 1:
            dist.all_reduce(ending)
        if ending:
            break
    sums /= time.perf_counter() - begun
    if RANKS > 1:
        dist.all_reduce(sums)
    if rank == 0:
        print(json.dumps({"samples_per_second": sums[0].item(), "tokens_per_second": sums[1].item()}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--by-hand", action="store_true")
    if RANKS > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo")
    train(parser.parse_args(), int(os.environ.get("RANK", "0")))


if __name__ == "__main__":
    main()
