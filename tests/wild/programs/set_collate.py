"""Trains a graph network on small random graphs; planted: collate_fn fills the batch's matrices edge by edge."""

# expects: input_bound/slow_collate
# package: torch
import random

import torch
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAX_NODES, FEATURES = 32, 16


def random_graph(rng):
    nodes = rng.randint(20, MAX_NODES)
    edges = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(3 * nodes)]
    return {"x": torch.randn(nodes, FEATURES), "edges": edges, "y": torch.randn(())}


def pad(graph):
    """Adds the padded and dense form of a graph, once."""
    nodes = len(graph["x"])
    graph["padded"] = torch.zeros(MAX_NODES, FEATURES)
    graph["padded"][:nodes] = graph["x"]
    source, target = torch.tensor(graph["edges"]).unbind(dim=1)
    adjacency = torch.eye(MAX_NODES)
    adjacency[source, target] = 1.0
    adjacency[target, source] = 1.0
    graph["adjacency"] = adjacency / adjacency.sum(dim=1, keepdim=True)
    graph["mask"] = (torch.arange(MAX_NODES) < nodes).float()
    return graph


class Graphs(Dataset):
    def __init__(self, count, prepare=None):
        rng = random.Random(0)
        self.graphs = [random_graph(rng) for _ in range(count)]
        if prepare is not None:
            self.graphs = [prepare(graph) for graph in self.graphs]

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        return self.graphs[index]


def collate_padded(graphs):
    return tuple(torch.stack([graph[key] for graph in graphs]) for key in ("padded", "adjacency", "mask", "y"))


def collate_edges(graphs):
    x = torch.zeros(len(graphs), MAX_NODES, FEATURES)
    adjacency = torch.eye(MAX_NODES).repeat(len(graphs), 1, 1)
    mask = torch.zeros(len(graphs), MAX_NODES)
    for i, graph in enumerate(graphs):
        nodes = len(graph["x"])
        x[i, :nodes] = graph["x"]
        mask[i, :nodes] = 1.0
        for source, target in graph["edges"]:
            adjacency[i, source, target] = 1.0  # <- cause
            adjacency[i, target, source] = 1.0  # <- cause
    adjacency /= adjacency.sum(dim=2, keepdim=True)
    return x, adjacency, mask, torch.stack([graph["y"] for graph in graphs])


class GraphNet(nn.Module):
    def __init__(self, hidden=160, layers=4):
        super().__init__()
        self.embed = nn.Linear(FEATURES, hidden)
        self.own = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.neighbours = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x, adjacency, mask):
        h = self.embed(x)
        for own, neighbours in zip(self.own, self.neighbours, strict=True):
            h = h + torch.relu(own(h) + neighbours(torch.bmm(adjacency, h)))
        pooled = (h * mask.unsqueeze(2)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return self.readout(pooled).squeeze(1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = Graphs(1200, prepare=None if PLANTED else pad)
    collate = collate_edges if PLANTED else collate_padded
    loader = DataLoader(data, batch_size=24, shuffle=True, drop_last=True, collate_fn=collate)
    model = GraphNet()
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    running = True
    clock = Clock()
    while running:
        for x, adjacency, mask, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x, adjacency, mask), y)
            loss.backward()
            optimizer.step()
            running = clock.step()
            if not running:
                break
    clock.tell()


if __name__ == "__main__":
    main()
