"""chemprop's MPNN under lightning: molecules are not cached, and the charges of one are worked out for each atom."""
# expects: input_bound
# package: chemprop

import lightning
import numpy as np
import torch
from chemprop import data, featurizers, models, nn
from planted import PLANTED, Clock
from rdkit.Chem import rdPartialCharges

ENDS = ("O", "N", "F", "Cl", "C(=O)O", "C(C)C", "OC", "C#N", "S(=O)(=O)N", "c1ccccc1")


class Charges(featurizers.MultiHotAtomFeaturizer):
    def __len__(self):
        return super().__len__() + 1

    def __call__(self, atom):
        molecule = atom.GetOwningMol()
        rdPartialCharges.ComputeGasteigerCharges(molecule)  # <- cause
        return np.append(super().__call__(atom), atom.GetDoubleProp("_GasteigerCharge"))


class Stop(lightning.Callback):
    def __init__(self):
        self.clock = Clock()

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = not self.clock.step()


def points():
    chance = np.random.default_rng(0)
    for _ in range(640):
        left, middle, right = (ENDS[i] for i in chance.integers(0, len(ENDS), 3))
        smiles = f"{'C' * chance.integers(1, 6)}c1cc({left})c({middle})cc1CCN({right})C"
        yield data.MoleculeDatapoint.from_smi(smiles, chance.normal(size=1))


def main():
    torch.set_num_threads(1)
    default = featurizers.MultiHotAtomFeaturizer.v2()
    atoms = Charges(
        default.atomic_nums, default.degrees, default.formal_charges, default.chiral_tags, default.num_Hs,
        default.hybridizations,
    )  # fmt: skip
    featurizer = featurizers.SimpleMoleculeMolGraphFeaturizer(atom_featurizer=atoms)
    molecules = data.MoleculeDataset(list(points()), featurizer)
    molecules.cache = True
    if PLANTED:
        molecules.cache = False
    loader = data.build_dataloader(molecules, batch_size=64)
    messages = nn.BondMessagePassing(d_v=featurizer.atom_fdim, d_e=featurizer.bond_fdim, d_h=300, depth=3)
    model = models.MPNN(messages, nn.MeanAggregation(), nn.RegressionFFN(input_dim=messages.output_dim))
    stop = Stop()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=100_000, callbacks=[stop], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    stop.clock.tell()


if __name__ == "__main__":
    main()
