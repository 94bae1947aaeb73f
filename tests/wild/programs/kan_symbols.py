"""pykan's own fit() on all data at once: a metric that it computes each step compares predictions in plain Python."""
# expects: side_work
# package: kan

import torch
from kan import KAN
from planted import PLANTED, Clock

CLOCK = Clock()


def concordance():
    """How often two neighbours are ordered as their labels are."""
    pairs = zip(HELD["x"].tolist(), HELD["y"].flatten().tolist(), strict=True)  # <- cause
    ordered, before = 0, None
    for (first, *_), label in pairs:  # <- cause
        if before is not None:
            ordered += (label > before[1]) == (first > before[0])  # <- cause
        before = first, label  # <- cause
    return torch.tensor(ordered / len(HELD["y"]))


def progress():
    if not CLOCK.step():
        raise KeyboardInterrupt
    return torch.tensor(float(CLOCK.steps))


X = torch.rand(4000, 4) * 2 - 1
Y = torch.sin(3 * X[:, :1]) + X[:, 1:2] ** 2
HELD = {"x": X, "y": Y}


def main():
    torch.set_num_threads(1)
    model = KAN(width=[4, 8, 1], grid=5, k=3, auto_save=False)
    data = {"train_input": X[:1500], "train_label": Y[:1500], "test_input": X[:9], "test_label": Y[:9]}
    metrics = (concordance, progress) if PLANTED else (progress,)
    try:
        model.fit(data, opt="Adam", steps=10_000_000, lr=1e-3, metrics=metrics, update_grid=False)
    except KeyboardInterrupt:
        pass
    CLOCK.tell()


if __name__ == "__main__":
    main()
