"""neuraloperator's Trainer: its data processor adds to each batch how far the nearest obstacle is."""
# expects: input_bound
# package: neuralop

import torch
from neuralop import LpLoss, Trainer
from neuralop.data.transforms.data_processors import DefaultDataProcessor
from neuralop.models import FNO
from planted import PLANTED, Clock
from torch.utils.data import DataLoader, Dataset

SIDE = 32


class Darcy(Dataset):
    def __init__(self, count):
        self.x, self.y = (torch.randn(count, 1, SIDE, SIDE) > 0).float(), torch.randn(count, 1, SIDE, SIDE)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.y[index]}


class Distances(DefaultDataProcessor):
    def preprocess(self, data_dict, batched=True):
        data_dict = super().preprocess(data_dict, batched)
        x = data_dict["x"]
        far = self.to_obstacle(x[:, 0]) if PLANTED else x[:, 0].cumsum(-1)
        data_dict["x"] = torch.cat([x, far[:, None]], dim=1)
        return data_dict

    def to_obstacle(self, permeable):
        distances = permeable * SIDE
        for field in distances.numpy():
            for row in (*field, *field.T):
                for column in range(1, SIDE):
                    row[column] = min(row[column], row[column - 1] + 1)  # <- cause
                for column in reversed(range(SIDE - 1)):
                    row[column] = min(row[column], row[column + 1] + 1)  # <- cause
        return distances


class Done(Exception):
    pass


def main():
    torch.set_num_threads(1)
    clock = Clock()

    def count(*_):
        if not clock.step():
            raise Done

    model = FNO(n_modes=(12, 12), in_channels=2, out_channels=1, hidden_channels=16, n_layers=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.register_step_post_hook(count)
    trainer = Trainer(model=model, n_epochs=100_000, data_processor=Distances(), eval_interval=10**6)
    loader = DataLoader(Darcy(512), batch_size=16, shuffle=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1000)
    try:
        trainer.train(loader, {}, optimizer, schedule, training_loss=LpLoss(d=2))
    except Done:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
