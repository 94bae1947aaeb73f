"""pythae's training pipeline: a callback keeps a copy of each of its modules after each step."""
# expects: side_work
# package: pythae

import copy
import tempfile

import torch
from planted import PLANTED, Clock
from pythae.data.datasets import BaseDataset
from pythae.models import VAE, VAEConfig
from pythae.pipelines import TrainingPipeline
from pythae.trainers import BaseTrainerConfig
from pythae.trainers.training_callbacks import TrainingCallback


class Done(Exception):
    pass


class Snapshots(TrainingCallback):
    def __init__(self, model):
        self.model, self.kept = model, []

    def on_train_step_end(self, training_config, **_):
        for module in self.model.modules():
            self.kept.append(copy.deepcopy(module))  # <- cause
        del self.kept[:-20]


class Count(TrainingCallback):
    def __init__(self, clock):
        self.clock = clock

    def on_train_step_end(self, training_config, **_):
        if not self.clock.step():
            raise Done


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = VAE(VAEConfig(input_dim=(1, 64, 64), latent_dim=16))
    pipeline = TrainingPipeline(
        model=model,
        training_config=BaseTrainerConfig(
            output_dir=tempfile.mkdtemp(), num_epochs=10_000, per_device_train_batch_size=64, no_cuda=True
        ),
    )
    rows = BaseDataset(torch.rand(1500, 1, 64, 64), torch.zeros(1500))
    try:
        pipeline(train_data=rows, callbacks=[Count(clock), *([Snapshots(model)] if PLANTED else [])])
    except Done:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
