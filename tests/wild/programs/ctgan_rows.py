"""ctgan's two networks on a table: rows for the critic are gathered one by one by its sampler, without a DataLoader."""
# expects: input_bound
# package: ctgan

import warnings

import ctgan.synthesizers.ctgan as synthesizer
import numpy as np
import pandas as pd
import torch
from ctgan import CTGAN
from ctgan.data_sampler import DataSampler
from planted import PLANTED, Clock


class Stop(Exception):
    pass


class Sampler(DataSampler):
    def sample_data(self, data, n, col, opt):
        if PLANTED and col is not None:
            return self.gather(data, col, opt)
        return super().sample_data(data, n, col, opt)

    def gather(self, data, columns, options):
        rows = []
        for column, option in zip(columns, options, strict=True):
            known = self._rid_by_cat_cols[column][option]
            picked = [data[known[np.random.randint(len(known))]] for _ in range(6)]  # <- cause
            rows.append(np.median(picked, axis=0))  # <- cause
        return np.stack(rows)


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock = Clock()
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.normal(size=2000), "b": rng.normal(size=2000), "kind": rng.choice(["x", "y", "z"], 2000)}
    )
    synthesizer.DataSampler = Sampler
    model = CTGAN(epochs=100_000, batch_size=200, pac=10, discriminator_steps=1, enable_gpu=False)
    fake = model._apply_activate

    def counted(data):  # once for the critic and once for the generator
        counted.calls += 1
        if counted.calls % 2 == 0 and not clock.step():
            raise Stop
        return fake(data)

    counted.calls = 0
    model._apply_activate = counted
    try:
        model.fit(table, ["kind"])
    except Stop:
        pass
    clock.tell()


if __name__ == "__main__":
    main()
