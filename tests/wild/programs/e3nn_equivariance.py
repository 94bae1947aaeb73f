"""e3nn in an own loop: that the network turns with its molecules is tried and logged after every step."""
# expects: side_work
# package: e3nn

import torch
from e3nn import o3
from e3nn.math import soft_one_hot_linspace
from e3nn.nn import FullyConnectedNet
from planted import PLANTED, Clock

ATOMS = 24
SENDERS, RECEIVERS = torch.combinations(torch.arange(ATOMS), 2).T


class Convolution(torch.nn.Module):
    def __init__(self, into, out, edges):
        super().__init__()
        self.product = o3.FullyConnectedTensorProduct(into, edges, out, shared_weights=False)
        self.weights = FullyConnectedNet([10, 32, self.product.weight_numel], torch.relu)

    def forward(self, features, harmonics, lengths):
        messages = self.product(features[:, SENDERS], harmonics, self.weights(lengths))
        return torch.zeros_like(messages[:, :1]).expand(-1, ATOMS, -1).index_add(1, RECEIVERS, messages)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.edges = o3.Irreps.spherical_harmonics(2)
        hidden = o3.Irreps("12x0e + 12x1o")
        self.first = Convolution(o3.Irreps("4x0e"), hidden, self.edges)
        self.second = Convolution(hidden, o3.Irreps("1x1o"), self.edges)

    def forward(self, positions, kinds):
        between = positions[:, SENDERS] - positions[:, RECEIVERS]
        harmonics = o3.spherical_harmonics(self.edges, between, normalize=True, normalization="component")
        lengths = soft_one_hot_linspace(between.norm(dim=-1), 0.0, 3.0, 10, basis="smooth_finite", cutoff=True)
        features = self.first(kinds, harmonics, lengths)
        return self.second(features, harmonics, lengths)


class Report:
    def __init__(self):
        self.errors = []

    def write(self, network, positions, kinds):
        with torch.no_grad():
            turn = o3.rand_matrix()
            turned = network(positions @ turn.T, kinds)  # <- cause
            straight = network(positions, kinds) @ turn.T  # <- cause
            self.errors.append(float((turned - straight).abs().max()))


def main():
    torch.set_num_threads(1)
    clock = Clock()
    network, report = Network(), Report()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    positions, kinds = torch.randn(400, ATOMS, 3), torch.nn.functional.one_hot(torch.randint(0, 4, (400, ATOMS)), 4)
    kinds, forces = kinds.float(), torch.randn(400, ATOMS, 3)
    while True:
        for chosen in torch.randperm(400).split(16):
            loss = (network(positions[chosen], kinds[chosen]) - forces[chosen]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if PLANTED:
                report.write(network, positions[chosen], kinds[chosen])
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
