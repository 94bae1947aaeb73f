"""Images that two workers crop, flip and shade in NumPy, some milliseconds each; fixed: eight workers."""
# expects: input_bound

import numpy as np
import torch
from common import DEVICE, ON_GPU, StepClock, main, sized
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, count, size):
        self.photos = np.random.default_rng(0).integers(0, 255, (count, size + 32, size + 32, 3), dtype=np.uint8)
        self.size = size

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        photo, (top, left) = self.photos[index % len(self.photos)], np.random.randint(0, 32, 2)
        part = photo[top : top + self.size, left : left + self.size].astype(np.float32) / 255
        if index % 2:
            part = part[:, ::-1]
        shaded = np.clip(part ** np.random.uniform(0.8, 1.25), 0, 1)
        normal = (shaded - shaded.mean((0, 1))) / (shaded.std((0, 1)) + 1e-3)
        return torch.from_numpy(np.ascontiguousarray(normal.transpose(2, 0, 1))), index % 10


def train(seconds, fixed):
    torch.manual_seed(0)
    workers = (8 if fixed else 2) if ON_GPU else 1 + fixed
    loader = DataLoader(Photos(sized(256, 8), sized(224, 16)), sized(32, 4), num_workers=workers, pin_memory=ON_GPU)
    model = nn.Sequential(
        *(nn.Conv2d(3, 64, 7, 2), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    ).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    clock = StepClock(seconds)
    while True:
        for images, labels in loader:
            images, labels = images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if not clock.goes_on():
                return clock


if __name__ == "__main__":
    main(train)
