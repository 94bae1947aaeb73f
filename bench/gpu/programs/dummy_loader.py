"""Vectors that cost half a millisecond each, for two workers; a linear model whose loss is read every step."""
# expects: input_bound

import time

import torch
from common import DEVICE, ON_GPU, StepClock, main, sized
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Vectors(Dataset):
    def __init__(self, count, width):
        self.vectors, self.labels = torch.randn(count, width), torch.randint(2, (count,))

    def __len__(self):
        return len(self.vectors)

    def __getitem__(self, index):
        vector = self.vectors[index]
        time.sleep(0.0005)
        return vector, self.labels[index]


def train(seconds, fixed):
    torch.manual_seed(0)
    data = Vectors(sized(8192, 512), 1024)
    workers = (12 if fixed else 2) if ON_GPU else 1 + fixed
    loader = DataLoader(
        data, batch_size=sized(128, 16), shuffle=True, num_workers=workers, pin_memory=ON_GPU, persistent_workers=True
    )
    model = nn.Linear(1024, 2).to(DEVICE)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock, total = StepClock(seconds), 0.0
    while True:
        for vectors, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(vectors.to(DEVICE)), labels.to(DEVICE))
            loss.backward()
            optimizer.step()
            total += loss.item()
            if not clock.goes_on():
                return clock


if __name__ == "__main__":
    main(train)
