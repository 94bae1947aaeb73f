"""Everything is float64, as the arrays were that the data came in; float32 would do."""
# expects: slow_setting/float64

import torch
from laps import fit, options
from torch import nn


def main():
    args = options()
    torch.manual_seed(0)
    dtype = torch.float32 if args.fixed else torch.float64
    images, labels = torch.randn(2_000, 3, 24, 24, dtype=dtype), torch.randint(10, (2_000,))
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3_200, 10)),
    ).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def batches():
        while True:
            picked = torch.randint(len(images), (32,))
            yield images[picked], labels[picked]

    fit(args, optimizer, batches(), lambda x, y: nn.functional.cross_entropy(model(x), y))


main()
