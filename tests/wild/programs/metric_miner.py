"""Trains an image embedding with mined triplets; planted: the miner and loss go anchor by anchor over tiny tensors."""

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


def hard_triplet_loss_loop(embeddings, labels):
    losses = []
    for i in range(len(embeddings)):
        distances = (embeddings - embeddings[i]).pow(2).sum(dim=1).add(1e-12).sqrt()  # <- cause
        same = labels == labels[i]
        same[i] = False
        positive = distances[same].max()  # <- cause
        negative = distances[labels != labels[i]].min()  # <- cause
        losses.append(F.relu(positive - negative + MARGIN))
    return torch.stack(losses).mean()


def hard_triplet_loss(embeddings, labels):
    distances = (2 - 2 * embeddings @ embeddings.T).clamp(min=1e-12).sqrt()
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    eye = torch.eye(len(labels), dtype=torch.bool)
    positive = distances.masked_fill(~same | eye, 0).amax(dim=1)
    negative = distances.masked_fill(same, 1e4).amin(dim=1)
    return F.relu(positive - negative + MARGIN).mean()


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
    criterion = hard_triplet_loss_loop if PLANTED else hard_triplet_loss

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
