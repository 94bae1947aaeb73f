"""A contrastive loss that goes through its anchors one by one; whole matrices do the same."""
# expects: compute_bound_cpu/python
# package: torch

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TEMPERATURE = 0.1


class Contrast(nn.Module):
    def forward(self, z, kinds):
        z = nn.functional.normalize(z, dim=1)
        return self.by_anchor(z, kinds) if PLANTED else self.at_once(z, kinds)

    def by_anchor(self, z, kinds):
        total = z.new_zeros(())
        for anchor in range(len(z)):
            near = torch.exp(z @ z[anchor] / TEMPERATURE)  # <- cause
            same = kinds == kinds[anchor]  # <- cause
            same[anchor] = False  # <- cause
            if same.any():  # <- cause
                total = total - torch.log(near[same].sum() / (near.sum() - near[anchor]))  # <- cause
        return total / len(z)

    def at_once(self, z, kinds):
        near = torch.exp(z @ z.T / TEMPERATURE)
        near = near - torch.diag(near.diag())
        same = kinds[:, None] == kinds
        share = (near * same).sum(1) / near.sum(1)
        return -torch.log(share[share > 0]).sum() / len(z)


def main():
    torch.set_num_threads(1)
    clock = Clock()
    rows = torch.randn(8_192, 128)
    loader = DataLoader(TensorDataset(rows, torch.randint(10, (8_192,))), batch_size=128, shuffle=True)
    encoder = nn.Sequential(nn.Linear(128, 1_024), nn.ReLU(), nn.Linear(1_024, 1_024), nn.ReLU(), nn.Linear(1_024, 64))
    contrast = Contrast()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-3)
    going = True
    while going:
        for batch, kinds in loader:
            loss = contrast(encoder(batch), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            going = clock.step()
            if not going:
                break
    clock.tell()


if __name__ == "__main__":
    main()
