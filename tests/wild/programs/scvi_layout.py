"""scvi-tools' variational autoencoder on counts that lie by columns, where each batch takes rows."""
# expects: input_bound
# package: scvi

import anndata
import lightning
import numpy as np
import scipy.sparse
import scvi
import torch
from planted import PLANTED, Clock

CELLS, GENES = 20_000, 1500


class Stop(lightning.pytorch.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = not self.clock.step()


def cells():
    counts = scipy.sparse.random(CELLS, GENES, 0.15, format="csr", dtype=np.float32, random_state=0)
    counts.data = np.ceil(counts.data * 10)
    return anndata.AnnData(scipy.sparse.csc_matrix(counts) if PLANTED else counts)


def main():
    torch.set_num_threads(1)
    data = cells()
    scvi.model.SCVI.setup_anndata(data)
    model = scvi.model.SCVI(data, n_hidden=192, n_latent=10)
    stop = Stop()
    model.train(  # <- cause
        max_epochs=100_000, accelerator="cpu", devices=1, batch_size=128, callbacks=[stop], enable_progress_bar=False,
        logger=False, early_stopping=False,
    )  # fmt: skip
    stop.clock.tell()


if __name__ == "__main__":
    main()
