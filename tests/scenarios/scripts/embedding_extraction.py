"""Embeddings of images are extracted: a loop without backward that waits for its loader."""
# expects: input_bound/no_workers

import torch
from laps import Laps, options
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return decode(index)


def decode(index):
    pixels = [(index * 31 + n * 7) % 255 / 255 for n in range(3 * 24 * 24)]  # <- cause
    return torch.tensor(pixels).view(3, 24, 24)  # <- cause


def main():
    args = options()
    loader = DataLoader(Images(), batch_size=32, num_workers=2 if args.fixed else 0)
    model = nn.Sequential(nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Conv2d(24, 24, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.eval()
    total = torch.zeros(24)
    watch = Laps(args.seconds)
    with torch.inference_mode():
        for images in loader:
            watch.lap("data")
            embeddings = model(images)
            watch.lap("forward")
            total += embeddings.sum(0)
            watch.lap("other")
            if not watch.step():
                break
    watch.report()


if __name__ == "__main__":
    main()
