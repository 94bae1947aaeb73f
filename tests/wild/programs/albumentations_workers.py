"""albumentations in a dataset that two workers read: a transform of its own vignettes each pixel."""
# expects: input_bound
# package: albumentations

import albumentations
import numpy as np
import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 48


class Vignette(albumentations.ImageOnlyTransform):
    def apply(self, img, **params):
        out = img.astype(np.float32)
        for row in range(SIDE):
            for column in range(SIDE):
                far = ((row - SIDE / 2) ** 2 + (column - SIDE / 2) ** 2) / SIDE**2  # <- cause
                out[row, column] *= 1 - far  # <- cause
        return out


class Photos(Dataset):
    def __init__(self):
        chance = np.random.default_rng(0)
        self.images = chance.integers(0, 255, (200, 64, 64, 3), dtype=np.uint8)
        self.transform = albumentations.Compose(
            [
                albumentations.RandomCrop(SIDE, SIDE),
                albumentations.HorizontalFlip(p=0.5),
                *([Vignette(p=1.0)] if PLANTED else []),
            ]
        )

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        image = self.transform(image=self.images[index % len(self.images)])["image"]
        return torch.from_numpy(image.astype(np.float32) / 255).permute(2, 0, 1), index % 10


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    loader = DataLoader(Photos(), batch_size=16, shuffle=True, num_workers=2)
    images, _ = next(iter(DataLoader(Photos(), batch_size=2)))
    model(images)
    optimizer = torch.optim.AdamW(model.parameters())
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
