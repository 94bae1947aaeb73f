"""A ResNet for tables (pytorch-frame): a loader of one's own adds a rank to each batch, row by row."""
# expects: input_bound
# package: torch_frame

import pandas as pd
import torch
import torch_frame
from planted import PLANTED, Clock
from torch_frame.data import DataLoader, Dataset
from torch_frame.nn import ResNet

COLUMNS = 24


class Ranked(DataLoader):
    """Batches whose first column is replaced by its rank in the row."""

    def collate_fn(self, index):
        batch = super().collate_fn(index)
        if PLANTED:
            numbers = batch.feat_dict[torch_frame.numerical]
            for row in numbers:
                row[0] = sorted(range(COLUMNS), key=row.__getitem__).index(0) / COLUMNS  # <- cause
        return batch


def main():
    torch.set_num_threads(1)
    clock = Clock()
    table = pd.DataFrame(torch.randn(20_000, COLUMNS).numpy(), columns=[f"x{i}" for i in range(COLUMNS)])
    table["y"] = (table["x0"] > table["x1"]).astype(int)
    kinds = {f"x{i}": torch_frame.numerical for i in range(COLUMNS)} | {"y": torch_frame.categorical}
    data = Dataset(table, col_to_stype=kinds, target_col="y")
    data.materialize()
    model = ResNet(
        channels=96, out_channels=2, num_layers=4, col_stats=data.col_stats,
        col_names_dict=data.tensor_frame.col_names_dict,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = Ranked(data.tensor_frame, batch_size=256, shuffle=True)
    going = True
    while going:
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            going = clock.step()
            if not going:
                break
    clock.tell()


if __name__ == "__main__":
    main()
