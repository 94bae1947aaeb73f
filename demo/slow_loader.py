"""A training that waits for its data: augmenting a batch in Python takes far longer than the model.

Run it under tuimon and it says so, with the line of augment() that keeps the workers busy.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from stopwatch import Budget, Stopwatch, add_common_options
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
SIDE = 48
NOISE = 4.0


def augment(image: np.ndarray, rng: np.random.Generator, passes: int) -> np.ndarray:
    """Warp the rows by a random wave and smooth them, one row at a time: slow, as such code often is."""
    kernel = np.array([0.25, 0.5, 0.25], dtype=np.float32)
    for _ in range(passes):
        phase = rng.uniform(0.0, 2 * np.pi)
        warped = np.empty_like(image)
        for row in range(SIDE):
            shift = int(2 * np.sin(phase + row / 5))
            warped[row] = np.convolve(np.roll(image[row], shift), kernel, mode="same")
        image = warped
    return image


class AugmentedImages(Dataset[tuple[Tensor, int]]):
    """Synthetic images, one pattern per class, augmented anew whenever they are read."""

    def __init__(self, count: int, passes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.passes = passes
        self.seed = seed
        self.patterns = rng.standard_normal((CLASSES, SIDE, SIDE), dtype=np.float32)
        self.labels = rng.integers(0, CLASSES, size=count)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        rng = np.random.default_rng((self.seed, index))
        label = int(self.labels[index])
        image = self.patterns[label] + NOISE * rng.standard_normal((SIDE, SIDE), dtype=np.float32)
        image = augment(image, rng, self.passes)
        return torch.from_numpy(image[None]), label


class SmallNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(32 * (SIDE // 4) ** 2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="DataLoader workers (default %(default)s; 0: none)")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step (default %(default)s)")
    parser.add_argument("--images", type=int, default=3200, help="images in the dataset (default %(default)s)")
    parser.add_argument("--passes", type=int, default=4, help="passes of augment() (default %(default)s; 0: none)")
    parser.add_argument("--device", default="cpu", help="where the model is (default %(default)s)")
    parser.add_argument("--log-interval", type=int, default=20, help="steps between two lines (default %(default)s)")
    add_common_options(parser, epochs=1000, threads=1)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    dataset = AugmentedImages(args.images, args.passes, args.seed)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    model = SmallNet().to(args.device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    watch, budget = Stopwatch(), Budget(args.steps, args.seconds)
    for epoch in range(1, args.epochs + 1):
        for index, (images, labels) in enumerate(loader):
            watch.lap("data")
            images, labels = images.to(args.device), labels.to(args.device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            watch.lap("forward")
            loss.backward()
            watch.lap("backward")
            optimizer.step()
            watch.lap("optimizer")
            if index % args.log_interval == 0:
                print(f"epoch {epoch}  {index:4d}/{len(loader)}  loss {loss.item():.4f}", flush=True)
            watch.step()
            budget.count()
            if budget.spent():
                break
        if budget.spent():
            break
    print(f"done: {budget.done} steps, median {watch.step_ms():.1f} ms")
    watch.write(args.truth)


if __name__ == "__main__":
    main()
