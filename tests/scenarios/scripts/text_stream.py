"""An IterableDataset parses JSON lines and splits words, in the training process."""
# expects: input_bound/no_workers

import json
import os
import random
import re
import tempfile

import torch
from laps import fit, options
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORDS = [f"w{i}" for i in range(500)]


class Lines(IterableDataset):
    def __init__(self, path, length=64):
        self.path, self.length = path, length

    def __iter__(self):
        while True:
            with open(self.path) as lines:
                for line in lines:
                    yield self.encode(json.loads(line)["text"])

    def encode(self, text):
        tokens = []
        for word in re.findall(r"\w+", text.lower()):  # <- cause
            tokens.append(hash(word) % 1000)  # <- cause
        return torch.tensor(tokens[: self.length]), torch.tensor(tokens[1 : self.length + 1])  # <- cause


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 32)
        self.rnn = nn.GRU(32, 48, batch_first=True)
        self.head = nn.Linear(48, 1000)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0][:, -1])


args = options()
random.seed(0)
path = os.path.join(tempfile.mkdtemp(), "text.jsonl")
with open(path, "w") as out:
    for _ in range(300):
        out.write(json.dumps({"text": " ".join(random.choices(WORDS, k=1500))}) + "\n")

model, lossy = Tiny(), nn.CrossEntropyLoss()
adam = torch.optim.Adam(model.parameters())
loader = DataLoader(Lines(path), batch_size=16, num_workers=1 if args.fixed else 0)
fit(args, adam, loader, lambda tokens, targets: lossy(model(tokens), targets[:, -1]))
