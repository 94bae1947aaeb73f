"""The collate function pads sentences word by word, in a worker."""
# expects: input_bound/slow_collate

import torch
from laps import fit, options
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.arange(20 + index % 60), index % 2


def collate(batch):
    longest = max(len(tokens) for tokens, _ in batch)
    padded = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, (tokens, _) in enumerate(batch):
        for column, token in enumerate(tokens):  # <- cause
            padded[row, column] = token  # <- cause
    return padded, torch.tensor([label for _, label in batch])


def fast_collate(batch):
    return pad_sequence([tokens for tokens, _ in batch], batch_first=True), torch.tensor([y for _, y in batch])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(100, 64)
        self.out = nn.Linear(64, 2)

    def forward(self, tokens):
        return self.out(self.bag(tokens))


def main():
    args = options()
    model = Classifier()
    opt = torch.optim.Adagrad(model.parameters())
    data = DataLoader(Sentences(), 32, num_workers=1, collate_fn=fast_collate if args.fixed else collate)
    fit(args, opt, data, lambda tokens, labels: nn.functional.cross_entropy(model(tokens), labels))


if __name__ == "__main__":
    main()
