"""A tagger with a conditional random field (pytorch-crf): each step ends with an exact match of the decoded batch."""
# expects: side_work
# package: torchcrf

import torch
from planted import PLANTED, Clock
from torch import nn
from torchcrf import CRF

WORDS, TAGS, LENGTH, BATCH = 5_000, 9, 32, 64


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 128)
        self.context = nn.LSTM(128, 160, num_layers=2, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(320, TAGS)
        self.crf = CRF(TAGS, batch_first=True)

    def forward(self, words, tags, mask):
        return -self.crf(self.emissions(words), tags, mask=mask, reduction="token_mean")

    def emissions(self, words):
        return self.scores(self.context(self.words(words))[0])


def spans(tags):
    found, begin = set(), 0
    for at in range(1, len(tags) + 1):
        if at == len(tags) or tags[at] != tags[begin]:
            found.add((begin, at, tags[begin]))
            begin = at
    return found


def exact_matches(model, words, tags, mask):
    right = total = 0
    with torch.no_grad():
        decoded = model.crf.decode(model.emissions(words), mask=mask)  # <- cause
    for found, wanted in zip(decoded, tags.tolist(), strict=True):
        expected = spans(wanted[: len(found)])
        right += len(spans(found) & expected)
        total += len(expected)
    return right / total


def main():
    torch.set_num_threads(1)
    clock = Clock()
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    words = torch.randint(WORDS, (4_000, LENGTH))
    tags = words % TAGS
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (4_000,))
    matches = []
    while True:
        rows = torch.randint(len(words), (BATCH,))
        mask = torch.arange(LENGTH) < lengths[rows, None]
        loss = model(words[rows], tags[rows], mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if PLANTED:
            matches.append(exact_matches(model, words[rows], tags[rows], mask))
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
