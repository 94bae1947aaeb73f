"""Trains a graph network with torch_geometric; planted: the attention readout loops over the graphs of the batch."""

# expects: compute_bound_cpu/python
# package: torch_geometric
import itertools

import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import softmax

GRAPHS_PER_BATCH = 64
FEATURES = 32
CLASSES = 4


def random_graph():
    nodes = int(torch.randint(12, 28, (1,)))
    edge_index = torch.randint(nodes, (2, 3 * nodes))
    return Data(x=torch.randn(nodes, FEATURES), edge_index=edge_index, y=torch.randint(CLASSES, (1,)))


class LoopReadout(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, 1)

    def forward(self, x, batch, num_graphs):
        gate = self.gate(x)
        pooled = []
        for graph in range(num_graphs):
            nodes = batch == graph
            weights = torch.softmax(gate[nodes], dim=0)  # <- cause
            pooled.append((weights * x[nodes]).sum(dim=0))  # <- cause
        return torch.stack(pooled)


class Readout(LoopReadout):
    def forward(self, x, batch, num_graphs):
        weights = softmax(self.gate(x), batch, num_nodes=num_graphs)
        return global_add_pool(weights * x, batch, size=num_graphs)


class GraphClassifier(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.conv1 = GCNConv(FEATURES, hidden)
        self.conv2 = GCNConv(hidden, hidden)
        self.conv3 = GCNConv(hidden, hidden)
        self.readout = LoopReadout(hidden) if PLANTED else Readout(hidden)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, data):
        x = self.conv1(data.x, data.edge_index).relu()
        x = self.conv2(x, data.edge_index).relu()
        x = self.conv3(x, data.edge_index).relu()
        return self.head(self.readout(x, data.batch, data.num_graphs))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches = [Batch.from_data_list([random_graph() for _ in range(GRAPHS_PER_BATCH)]) for _ in range(24)]
    model = GraphClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)

    model.train()
    clock = Clock()
    for data in itertools.cycle(batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), data.y)
        loss.backward()
        optimizer.step()
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
