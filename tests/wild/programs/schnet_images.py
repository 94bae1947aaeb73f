"""schnetpack's SchNet: the data set finds every atom's neighbours by comparing all pairs in plain Python."""
# expects: input_bound
# package: schnetpack

import random

import torch.utils.data.dataloader

torch.utils.data.dataloader.T_co = None  # schnetpack 2.0 imports it, torch has it no longer

import schnetpack
import schnetpack.properties as names
from planted import PLANTED, Clock
from schnetpack.data.loader import AtomsLoader
from torch.utils.data import Dataset

ATOMS = 14


def pairs(places):
    found = []
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            if i != j and sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) < 16.0:  # <- cause
                found.append((i, j))
    return found


class Molecules(Dataset):
    def __init__(self):
        random.seed(1)
        self.places = [[[random.uniform(0, 5) for _ in "xyz"] for _ in range(ATOMS)] for _ in range(300)]
        self.known = [self.item(places, pairs(places)) for places in self.places]

    def __len__(self):
        return 2000

    def __getitem__(self, index):
        places = self.places[index % 300]
        return self.item(places, pairs(places)) if PLANTED else self.known[index % 300]

    def item(self, places, found):
        i, j = torch.tensor(found).T
        return {
            names.idx: torch.tensor([0]), names.n_atoms: torch.tensor([ATOMS]), names.Z: torch.full((ATOMS,), 6),
            names.R: torch.tensor(places), names.idx_i: i, names.idx_j: j, names.offsets: torch.zeros(len(i), 3),
            "energy": torch.tensor([len(found) / 100]),
        }  # fmt: skip


def main():
    torch.set_num_threads(1)
    clock = Clock()
    model = schnetpack.model.NeuralNetworkPotential(
        schnetpack.representation.SchNet(
            n_atom_basis=64, n_interactions=4, radial_basis=schnetpack.nn.GaussianRBF(12, 4.0),
            cutoff_fn=schnetpack.nn.CosineCutoff(4.0),
        ),
        input_modules=[schnetpack.atomistic.PairwiseDistances()],
        output_modules=[schnetpack.atomistic.Atomwise(n_in=64, output_key="energy")],
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    going = True
    while going:
        for batch in AtomsLoader(Molecules(), batch_size=16, shuffle=True):
            truth = batch["energy"].clone()
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(model(batch)["energy"], truth)
            loss.backward()
            optimizer.step()
            going = clock.step()
            if not going:
                break
    clock.tell()


if __name__ == "__main__":
    main()
