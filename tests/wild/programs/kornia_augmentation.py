"""kornia's augmentations on batches in the loop: one of its own, a module too, blots images out pixel by pixel."""
# expects: input_bound
# package: kornia

import random

import kornia
import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Blots(nn.Module):
    def forward(self, images):
        images = images.clone()
        for image in images:
            for _ in range(160):
                row, column = random.randrange(32), random.randrange(32)
                image[:, row, column] = 0.0  # <- cause
        return images


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 48, 3), nn.ReLU(), nn.Conv2d(48, 48, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48 * 784, 10)
        )

    def forward(self, images):
        return self.layers(images)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    augment = nn.Sequential(kornia.augmentation.RandomHorizontalFlip(), *([Blots()] if PLANTED else []))
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    rows = TensorDataset(torch.rand(2000, 3, 32, 32), torch.randint(10, (2000,)))
    loader = DataLoader(rows, batch_size=32, shuffle=True)
    running = True
    while running:
        for images, labels in loader:
            with torch.no_grad():
                images = augment(images)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running = clock.step()
            if not running:
                break
    clock.tell()


if __name__ == "__main__":
    main()
