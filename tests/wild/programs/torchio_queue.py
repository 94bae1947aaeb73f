"""torchio's queue of patches: a transform of one's own smooths each volume by a running median in Python."""
# expects: input_bound
# package: torchio

import statistics

import torch
import torchio
from planted import PLANTED, Clock
from torch import nn

SIDE = 40


def despeckle(tensor):
    flat = tensor.flatten()
    values = flat.tolist()
    for i in range(4, len(values) - 4, 2):
        flat[i] = statistics.median(values[i - 4 : i + 5])  # <- cause
    return flat.view_as(tensor)


def augmentation():
    steps = [torchio.RandomFlip(axes=(0, 1, 2))]
    if PLANTED:
        steps.insert(0, torchio.Lambda(despeckle, types_to_apply=[torchio.INTENSITY]))
    return torchio.Compose(steps)


def block(into, out):
    return nn.Sequential(nn.Conv3d(into, out, 3, padding=1), nn.InstanceNorm3d(out), nn.LeakyReLU())


def main():
    torch.set_num_threads(1)
    clock = Clock()
    subjects = [
        torchio.Subject(
            t1=torchio.ScalarImage(tensor=torch.randn(1, SIDE, SIDE, SIDE)),
            brain=torchio.LabelMap(tensor=torch.randint(0, 2, (1, SIDE, SIDE, SIDE))),
        )
        for _ in range(8)
    ]
    dataset = torchio.SubjectsDataset(subjects, transform=augmentation())
    queue = torchio.Queue(dataset, max_length=32, samples_per_volume=8, sampler=torchio.UniformSampler(24))
    network = nn.Sequential(block(1, 16), block(16, 16), block(16, 16), nn.Conv3d(16, 1, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    while True:
        for patches in torchio.SubjectsLoader(queue, batch_size=4, num_workers=0):
            images, targets = patches["t1"][torchio.DATA], patches["brain"][torchio.DATA]
            loss = nn.functional.binary_cross_entropy_with_logits(network(images), targets.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
