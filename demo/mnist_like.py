"""Train the small CNN everybody knows from MNIST, on synthetic digits: no download, CPU or GPU.

The images are preloaded to the device; --workers N feeds them through a DataLoader with N workers instead.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F
from stopwatch import Budget, Stopwatch, add_common_options
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
NOISE = 2.0
TRAIN_IMAGES = 6400
TEST_IMAGES = 1000
TEST_BATCH = 250


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(32 * 12 * 12, 128)
        self.fc2 = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout1(x).flatten(1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def synthetic_digits(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy, shifted copies of one smooth random pattern per class: learnable, and not at once."""
    patterns = torch.Generator().manual_seed(2024)
    coarse = torch.randn(CLASSES, 1, 7, 7, generator=patterns)
    prototypes = F.interpolate(coarse, size=(28, 28), mode="bilinear", align_corners=False)
    own = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=own)
    images = prototypes[labels] + NOISE * torch.randn(count, 1, 28, 28, generator=own)
    shifts = torch.randint(-3, 4, (count, 2), generator=own).tolist()
    for index, (down, right) in enumerate(shifts):
        images[index] = images[index].roll((down, right), dims=(1, 2))
    return images, labels


def shuffled_batches(images: Tensor, labels: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of tensors that are on the device already."""
    order = torch.randperm(len(labels), device=images.device)
    for start in range(0, len(labels), batch_size):
        chosen = order[start : start + batch_size]
        yield images[chosen], labels[chosen]


def nvtx_ranges() -> Callable[[str], contextlib.AbstractContextManager[object]]:
    """NVTX ranges where this build of torch has them, otherwise nothing."""
    if torch.cuda.is_available():
        return torch.cuda.nvtx.range
    return contextlib.nullcontext


def train_epoch(
    model: nn.Module,
    optimizer: optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    epoch: int,
    args: argparse.Namespace,
    watch: Stopwatch,
    budget: Budget,
) -> None:
    model.train()
    span = nvtx_ranges()
    total = -(-TRAIN_IMAGES // args.batch_size)
    for index, (images, labels) in enumerate(batches):
        with span("batch"):
            watch.lap("data")
            images, labels = images.to(args.device), labels.to(args.device)
            optimizer.zero_grad()
            with span("forward"):
                output = model(images)
                loss = F.nll_loss(output, labels)
            watch.lap("forward")
            with span("backward"):
                loss.backward()
            watch.lap("backward")
            with span("optimize"):
                optimizer.step()
            watch.lap("optimizer")
            loss_now = loss.item()
            if index % args.log_interval == 0:
                print(f"epoch {epoch}  {index:4d}/{total}  loss {loss_now:.4f}", flush=True)
        watch.step()
        budget.count()
        if budget.spent():
            return


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], device: torch.device) -> float:
    """Accuracy, 0..1."""
    model.eval()
    right = seen = 0
    for images, labels in batches:
        predicted = model(images.to(device)).argmax(dim=1)
        right += int((predicted == labels.to(device)).sum())
        seen += len(labels)
    return right / seen


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", nargs="?", choices=["cpu", "gpu"], default="cpu", help="where to train (default cpu)")
    parser.add_argument("--workers", type=int, help="feed through a DataLoader with this many workers (0: none)")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step (default %(default)s)")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate (default %(default)s)")
    parser.add_argument("--log-interval", type=int, default=10, help="steps between two lines (default %(default)s)")
    parser.add_argument("--eval-every", type=int, default=1, help="evaluate after so many epochs (0: never)")
    add_common_options(parser, epochs=5)
    args = parser.parse_args()
    if args.where == "gpu" and not torch.cuda.is_available():
        build = f"torch {torch.__version__} is built for CUDA {torch.version.cuda}"
        reason = f"{build}, but it finds no GPU" if torch.version.cuda else "this build of torch has no CUDA"
        sys.exit(f"mnist_like.py: cannot train on a GPU: {reason}. Leave 'gpu' out to train on the CPU.")
    args.device = torch.device("cuda" if args.where == "gpu" else "cpu")
    return args


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    if args.threads:
        torch.set_num_threads(args.threads)
    train_images, train_labels = synthetic_digits(TRAIN_IMAGES, seed=args.seed)
    test_images, test_labels = synthetic_digits(TEST_IMAGES, seed=args.seed + 1)
    if args.workers is None:
        train_images, train_labels = train_images.to(args.device), train_labels.to(args.device)
        test_images, test_labels = test_images.to(args.device), test_labels.to(args.device)
    else:
        loader = DataLoader(
            TensorDataset(train_images, train_labels),
            batch_size=args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=args.workers > 0,
            pin_memory=args.where == "gpu",
        )
        test_loader = DataLoader(TensorDataset(test_images, test_labels), batch_size=TEST_BATCH)

    model = Net().to(args.device)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    watch, budget = Stopwatch(), Budget(args.steps, args.seconds)
    for epoch in range(1, args.epochs + 1):
        if args.workers is None:
            batches = shuffled_batches(train_images, train_labels, args.batch_size)
            test_batches = zip(test_images.split(TEST_BATCH), test_labels.split(TEST_BATCH), strict=True)
        else:
            batches, test_batches = loader, test_loader
        watch.restart()
        train_epoch(model, optimizer, batches, epoch=epoch, args=args, watch=watch, budget=budget)
        if args.eval_every and epoch % args.eval_every == 0:
            accuracy = evaluate(model, test_batches, args.device)
            watch.eval()
            print(f"epoch {epoch}  test accuracy {accuracy:.1%}", flush=True)
        if budget.spent():
            break
    print(f"done: {budget.done} steps, median {watch.step_ms():.2f} ms")
    watch.write(args.truth)


if __name__ == "__main__":
    main()
