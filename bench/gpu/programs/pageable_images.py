"""77 MB are copied from pageable memory in every step; fixed: from pinned memory, one batch ahead."""
# expects: transfer_bound

import itertools

import torch
from common import DEVICE, ON_GPU, StepClock, main, sized
from torch import nn


def copied_ahead(batches):
    """The next batch is copied on a stream of its own while this one is computed on."""
    stream = torch.cuda.Stream()
    ready = None
    for batch in batches:
        with torch.cuda.stream(stream):
            coming = batch.to(DEVICE, non_blocking=True)
        if ready is not None:
            yield ready
        torch.cuda.current_stream().wait_stream(stream)
        coming.record_stream(torch.cuda.current_stream())
        ready = coming


def train(seconds, fixed):
    torch.manual_seed(0)
    pool = [torch.randn(sized((128, 3, 224, 224), (4, 3, 32, 32))) for _ in range(4)]
    ahead = fixed and ON_GPU
    if ahead:
        pool = [images.pin_memory() for images in pool]
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 7, 4), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    ).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    clock, batches = StepClock(seconds), itertools.cycle(pool)
    for images in copied_ahead(batches) if ahead else batches:
        images = images.to(DEVICE)
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()
        if not clock.goes_on():
            break
    return clock


if __name__ == "__main__":
    main(train)
