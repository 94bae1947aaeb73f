"""mmengine's Runner: the metric of its validation counts pixels one by one."""
# expects: side_work
# package: mmengine

import tempfile

import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import Dataset

CLASSES, SIDE = 6, 40


class Scenes(Dataset):
    def __init__(self, count):
        self.images, self.masks = torch.rand(count, 3, SIDE, SIDE), torch.randint(CLASSES, (count, SIDE, SIDE))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.masks[index]


class Segmenter(BaseModel):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
            nn.Conv2d(24, CLASSES, 1),
        )  # fmt: skip

    def forward(self, images, masks, mode):
        scores = self.layers(images)
        if mode == "loss":
            return {"loss": nn.functional.cross_entropy(scores, masks)}
        return scores.argmax(1), masks


class Confusion(BaseMetric):
    def process(self, data_batch, data_samples):
        found, masks = data_samples
        counts = self.by_pixel(found, masks) if PLANTED else torch.bincount((found * CLASSES + masks).flatten())
        self.results.append(counts)

    def by_pixel(self, found, masks):
        counts = [[0] * CLASSES for _ in range(CLASSES)]
        for image, mask in zip(found.tolist(), masks.tolist(), strict=True):
            for row, truth in zip(image, mask, strict=True):
                for pixel, label in zip(row, truth, strict=True):
                    for other in range(4 * CLASSES):
                        counts[other % CLASSES][pixel] += other == label  # <- cause
        return counts

    def compute_metrics(self, results):
        return {"batches": len(results)}


class Done(Exception):
    pass


class Count(Hook):
    def __init__(self):
        self.clock = Clock()

    def after_train_iter(self, runner, *_, **__):
        if not self.clock.step():
            raise Done


def main():
    torch.set_num_threads(1)
    count = Count()
    runner = Runner(
        Segmenter(), tempfile.mkdtemp(),
        train_dataloader={
            "dataset": Scenes(240), "batch_size": 16, "num_workers": 0, "collate_fn": {"type": "default_collate"},
            "sampler": {"type": "DefaultSampler", "shuffle": True},
        },
        val_dataloader={
            "dataset": Scenes(48), "batch_size": 16, "num_workers": 0, "collate_fn": {"type": "default_collate"},
            "sampler": {"type": "DefaultSampler", "shuffle": False},
        },
        train_cfg={"by_epoch": True, "max_epochs": 10_000, "val_interval": 1}, val_cfg={},
        val_evaluator=Evaluator(Confusion()), optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.01}},
        default_hooks={"checkpoint": None}, custom_hooks=[count], log_level="ERROR",
    )  # fmt: skip
    try:
        runner.train()
    except Done:
        pass
    count.clock.tell()


if __name__ == "__main__":
    main()
