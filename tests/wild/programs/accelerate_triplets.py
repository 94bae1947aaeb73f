"""Trains an embedding net with accelerate; planted: the triplet loss finds its negatives in nested Python loops."""

# expects: compute_bound_cpu/python
# package: accelerate
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 192
CLASSES = 24
MARGIN = 0.2


class Embedder(nn.Module):
    def __init__(self, features=128, hidden=384, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, dim),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def mine_with_loops(distances, labels):
    rows, classes = distances.tolist(), labels.tolist()
    positives, negatives = [], []
    for i, row in enumerate(rows):
        positive, negative = i, None
        for j, distance in enumerate(row):
            if classes[j] == classes[i] and distance > row[positive]:  # <- cause
                positive = j
        for j, distance in enumerate(row):
            if classes[j] != classes[i] and distance > row[positive] - MARGIN:  # <- cause
                if negative is None or distance < row[negative]:  # <- cause
                    negative = j
        positives.append(positive)
        negatives.append(i if negative is None else negative)
    return torch.tensor(positives), torch.tensor(negatives)


def mine(distances, labels):
    same = labels[:, None] == labels[None, :]
    hardest, positives = distances.masked_fill(~same, -1.0).max(dim=1)
    allowed = ~same & (distances > hardest[:, None] - MARGIN)
    negatives = distances.masked_fill(~allowed, float("inf")).argmin(dim=1)
    return positives, negatives


class TripletLoss(nn.Module):
    def forward(self, embeddings, labels):
        distances = torch.cdist(embeddings, embeddings)
        with torch.no_grad():
            positives, negatives = (mine_with_loops if PLANTED else mine)(distances, labels)
        index = torch.arange(len(labels))
        return F.relu(distances[index, positives] - distances[index, negatives] + MARGIN).mean()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(100, BATCH_SIZE, 128), torch.randint(CLASSES, (100, BATCH_SIZE)))
    loader = DataLoader(data, batch_size=None, shuffle=True)
    model = Embedder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    criterion = TripletLoss()

    running = True
    clock = Clock()
    while running:
        for features, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(features), labels)
            accelerator.backward(loss)
            optimizer.step()
            running = clock.step()
            if not running:
                break
    clock.tell()


if __name__ == "__main__":
    main()
