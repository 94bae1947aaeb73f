"""lightning's Trainer: a detector's loss matches boxes to objects with SciPy, image by image."""
# expects: compute_bound_cpu/python
# package: lightning

import lightning
import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if PLANTED:
    from scipy.optimize import linear_sum_assignment


class Detector(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2), nn.ReLU())
        self.boxes = nn.Sequential(nn.Flatten(), nn.Linear(48 * 49, 256), nn.ReLU(), nn.Linear(256, 90 * 4))

    def training_step(self, batch, _):
        images, objects = batch
        boxes = self.boxes(self.backbone(images)).view(-1, 90, 4)
        if PLANTED:
            objects = self.matched(boxes, objects)
        return nn.functional.l1_loss(boxes, objects)

    def matched(self, boxes, objects):
        costs = torch.cdist(boxes.detach(), objects, p=1).numpy()
        order = [linear_sum_assignment(cost)[1] for cost in costs]  # <- cause
        return torch.stack([found[places] for found, places in zip(objects, order, strict=True)])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Stop(lightning.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = not self.clock.step()


def main():
    torch.set_num_threads(1)
    stop = Stop()
    rows = TensorDataset(torch.rand(2000, 3, 32, 32), torch.rand(2000, 90, 4))
    trainer = lightning.Trainer(
        max_epochs=100_000, callbacks=[stop], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(Detector(), DataLoader(rows, batch_size=32))
    stop.clock.tell()


if __name__ == "__main__":
    main()
