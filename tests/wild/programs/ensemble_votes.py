"""torchensemble trains its members one after the other: each image is jittered pixel row by pixel row."""
# expects: input_bound
# package: torchensemble

import random

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset
from torchensemble import VotingClassifier

CLOCK = Clock()


class Images(Dataset):
    def __init__(self):
        self.images = torch.rand(512, 3, 32, 32)

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        image = self.images[index % 512]
        if PLANTED:
            image = self.jitter(image)
        return image, index % 10

    def jitter(self, image):
        rows = []
        for row in image.unbind(1):
            rows.append(row.roll(random.randint(-2, 2), 1))  # <- cause
        return torch.stack(rows, 1)  # <- cause


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 15 * 15, 10),
        )  # fmt: skip

    def forward(self, images):
        return self.layers(images)


class Over(Exception):
    pass


def count(*_):
    if not CLOCK.step():
        raise Over


def main():
    torch.set_num_threads(1)
    register_optimizer_step_post_hook(count)
    ensemble = VotingClassifier(estimator=Small, n_estimators=3, cuda=False)
    ensemble.set_optimizer("Adam", lr=1e-3)
    try:
        ensemble.fit(DataLoader(Images(), batch_size=64, shuffle=True), epochs=1000, save_model=False)
    except Over:
        CLOCK.tell()


if __name__ == "__main__":
    main()
