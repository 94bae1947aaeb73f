"""Trains an image embedding with mined triplets; planted: the miner goes pair by pair over tiny tensors."""

# expects: compute_bound_cpu/python
# package: torch
import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch import nn

CLASSES_PER_BATCH, PER_CLASS = 12, 4
MARGIN = 0.2


class EmbeddingNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(48, 64, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.project = nn.Linear(256, dim)

    def forward(self, images):
        return F.normalize(self.project(self.trunk(images)), dim=1)


def mine_loop(distances, labels):
    """For each anchor and positive, the closest negative that is farther than the positive."""
    triplets = []
    for a in range(len(labels)):
        negatives = torch.nonzero(labels != labels[a]).squeeze(1)
        for p in torch.nonzero(labels == labels[a]).squeeze(1):
            if p == a:
                continue
            candidates = distances[a, negatives]  # <- cause
            semi_hard = torch.where(candidates > distances[a, p], candidates, torch.tensor(1e4))  # <- cause
            triplets.append(torch.stack([torch.tensor(a), p, negatives[semi_hard.argmin()]]))  # <- cause
    return torch.stack(triplets).unbind(dim=1)


def mine(distances, labels):
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    anchors, positives = torch.nonzero(same & ~torch.eye(len(labels), dtype=torch.bool)).unbind(dim=1)
    rows = distances[anchors]
    allowed = ~same[anchors] & (rows > distances[anchors, positives].unsqueeze(1))
    return anchors, positives, rows.masked_fill(~allowed, 1e4).argmin(dim=1)


class SemiHardTripletLoss(nn.Module):
    def __init__(self, miner):
        super().__init__()
        self.miner = miner

    def forward(self, embeddings, labels):
        distances = (2 - 2 * embeddings @ embeddings.T).clamp(min=1e-6).sqrt()
        anchors, positives, negatives = self.miner(distances.detach(), labels)
        return F.relu(distances[anchors, positives] - distances[anchors, negatives] + MARGIN).mean()


class BalancedPool:
    """Images of many classes, already on hand; batches with a fixed number of images of each drawn class."""

    def __init__(self, classes=60, per_class=20, size=20):
        self.images = torch.randn(classes, per_class, 3, size, size)
        self.classes, self.per_class = classes, per_class

    def draw(self):
        chosen = torch.randperm(self.classes)[:CLASSES_PER_BATCH]
        columns = torch.randint(self.per_class, (CLASSES_PER_BATCH, PER_CLASS))
        images = self.images[chosen.unsqueeze(1), columns].flatten(0, 1)
        return images, chosen.repeat_interleave(PER_CLASS)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pool = BalancedPool()
    batches = [pool.draw() for _ in range(150)]
    net = EmbeddingNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    criterion = SemiHardTripletLoss(mine_loop if PLANTED else mine)

    step = 0
    clock = Clock()
    while True:
        images, labels = batches[step % len(batches)]
        loss = criterion(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
