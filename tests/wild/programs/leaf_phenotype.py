"""Trains a small convolution net to grade leaf rust, in short epochs; planted: each forks new worker processes."""

# expects: input_bound
# package: torch
import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset

GRADES = 5


class PlotPhotos(Dataset):
    """Photographs of the few plots of a trial, as uint8; flipped at random."""

    def __init__(self, count=64, size=64):
        self.grades = torch.randint(GRADES, (count,))
        photos = torch.randint(60, 160, (count, 3, size, size))
        spots = torch.rand(count, size, size) < 0.02 + 0.05 * self.grades[:, None, None]
        photos[:, 0] += 90 * spots
        self.photos = photos.clamp(0, 255).to(torch.uint8)

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        photo = self.photos[index].float().div_(255).sub_(0.45).div_(0.25)
        if torch.rand(()) < 0.5:
            photo = photo.flip(-1)
        return photo, self.grades[index]


def unit(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.SiLU())


class RustNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(unit(3, 24, 2), unit(24, 32, 1), unit(32, 48, 2), unit(48, 64, 1), unit(64, 96, 2))
        self.head = nn.Linear(96, GRADES)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = RustNet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.clock = Clock()
        self.running = True

    def step(self, x, y):
        loss = self.criterion(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train_epoch(self):
        total = torch.zeros(())
        for x, y in self.loader:  # <- cause
            total += self.step(x, y)
            self.running = self.clock.step()
            if not self.running:
                break
        return total.item() / len(self.loader)

    def run(self):
        epoch = 0
        while self.running:
            loss = self.train_epoch()
            epoch += 1
            if epoch % 10 == 0:
                print(f"epoch {epoch} loss {loss:.3f}")
        self.clock.tell()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    Trainer(DataLoader(PlotPhotos(), batch_size=16, shuffle=True, num_workers=2 if PLANTED else 0)).run()


if __name__ == "__main__":
    main()
