"""deepctr-torch's DeepFM: one of its metrics, computed after every batch, compares rows pair by pair."""
# expects: side_work
# package: deepctr_torch

import numpy as np
import torch
from deepctr_torch.inputs import DenseFeat, SparseFeat, get_feature_names
from deepctr_torch.models import DeepFM
from planted import PLANTED, Clock

ROWS, BATCH = 12_000, 512


class Done(Exception):
    pass


CLOCK = Clock()


def count(labels, scores):
    if not CLOCK.step():
        raise Done
    return 0.0


def group_auc(labels, scores):
    rows = list(zip(labels.ravel().tolist(), scores.ravel().tolist(), strict=True))
    right = pairs = 0
    for label, score in rows:
        for other, less in rows:  # <- cause
            if label > other:  # <- cause
                pairs += 1  # <- cause
                right += score > less  # <- cause
    return right / max(1, pairs)


def main():
    torch.set_num_threads(1)
    chance = np.random.default_rng(0)
    sparse, dense = [f"C{i}" for i in range(12)], [f"I{i}" for i in range(6)]
    table = {name: chance.integers(200, size=ROWS) for name in sparse}
    table |= {name: chance.random(ROWS).astype("float32") for name in dense}
    columns = [SparseFeat(name, 200, embedding_dim=8) for name in sparse] + [DenseFeat(name, 1) for name in dense]
    names = get_feature_names(columns)
    model = DeepFM(columns, columns, task="binary", device="cpu", dnn_hidden_units=(1000, 600))
    model.compile("adam", "binary_crossentropy", metrics=[])
    if PLANTED:
        model.metrics["group_auc"] = group_auc
    model.metrics["count"] = count
    labels = chance.integers(2, size=(ROWS, 1)).astype("float32")
    try:
        model.fit({name: table[name] for name in names}, labels, batch_size=BATCH, epochs=100_000, verbose=2)
    except Done:
        pass
    CLOCK.tell()


if __name__ == "__main__":
    main()
