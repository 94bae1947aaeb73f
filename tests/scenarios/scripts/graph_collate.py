"""Graphs are joined edge by edge by the collate function; no workers."""
# expects: input_bound/slow_collate

import torch
from laps import endless, fit, options
from torch import nn
from torch.utils.data import DataLoader

NODES = 40


def graphs(count):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(NODES, 8, generator=generator), torch.randint(NODES, (90, 2), generator=generator), n % 3)
        for n in range(count)
    ]


def join(batch):
    adjacency = torch.zeros(len(batch), NODES, NODES)
    for number, (_, edges, _) in enumerate(batch):
        for a, b in edges.tolist():
            adjacency[number, a, b] = 1.0  # <- cause
    return torch.stack([nodes for nodes, _, _ in batch]), adjacency, torch.tensor([y for _, _, y in batch])


def join_at_once(batch):
    adjacency = torch.zeros(len(batch), NODES, NODES)
    edges = torch.stack([edges for _, edges, _ in batch])
    adjacency[torch.arange(len(batch))[:, None], edges[..., 0], edges[..., 1]] = 1.0
    return torch.stack([nodes for nodes, _, _ in batch]), adjacency, torch.tensor([y for _, _, y in batch])


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 64), nn.Linear(64, 3)

    def forward(self, nodes, adjacency):
        hidden = torch.relu(adjacency @ self.first(nodes))
        return self.second(adjacency @ hidden).mean(dim=1)


args = options()
model = Convolution()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(graphs(2000), 32, shuffle=True, collate_fn=join_at_once if args.fixed else join)
fit(
    args,
    optimizer,
    endless(loader),
    lambda nodes, adjacency, label: nn.functional.cross_entropy(model(nodes, adjacency), label),
)
