"""Trains a character LSTM written cell by cell; planted: the dataset cleans and encodes its text in Python per item."""

# expects: input_bound
# package: torch
import random
import string

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = string.ascii_lowercase + string.digits + " .,'"
CHAR_TO_ID = {char: i + 1 for i, char in enumerate(ALPHABET)}
SEQ_LEN = 24


def make_lines(count, seed=0):
    rng = random.Random(seed)
    letters = string.ascii_letters + string.digits + "   .,;:!?'"
    return ["".join(rng.choices(letters, k=4000)) for _ in range(count)]


def encode(line):
    ids = []
    for char in line.lower():
        if char in ";:!?":  # <- cause
            char = "."
        ids.append(CHAR_TO_ID.get(char, 0))  # <- cause
    return ids


class Lines(Dataset):
    def __init__(self, lines, lazy):
        self.lazy = lazy
        self.lines = lines
        self.encoded = None if lazy else torch.tensor([encode(line) for line in lines])

    def __len__(self):
        return len(self.lines)

    def crop(self, ids):
        start = random.randrange(len(ids) - SEQ_LEN - 1)
        return ids[start : start + SEQ_LEN + 1]

    def __getitem__(self, index):
        if self.lazy:
            return torch.tensor(self.crop(encode(self.lines[index])))
        return self.crop(self.encoded[index])


class Cell(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.x2h = nn.Linear(input_size, 4 * hidden_size)
        self.h2h = nn.Linear(hidden_size, 4 * hidden_size, bias=False)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.x2h(x) + self.h2h(h)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class CharModel(nn.Module):
    def __init__(self, vocab, hidden=192):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(vocab, 64)
        self.cell = Cell(64, hidden)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, tokens):
        state = torch.zeros(len(tokens), self.hidden), torch.zeros(len(tokens), self.hidden)
        outputs = []
        for x in self.embed(tokens).unbind(dim=1):
            state = self.cell(x, state)
            outputs.append(state[0])
        return self.out(torch.stack(outputs, dim=1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    data = Lines(make_lines(1000), lazy=PLANTED)
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    model = CharModel(len(ALPHABET) + 1)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    running = True
    clock = Clock()
    while running:
        for batch in loader:
            logits = model(batch[:, :-1])
            loss = criterion(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running = clock.step()
            if not running:
                break
    clock.tell()


if __name__ == "__main__":
    main()
