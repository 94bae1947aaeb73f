"""PyTorch Geometric: a layer counts each node's triangles by Python sets, at every pass."""
# expects: compute_bound_cpu/python
# package: torch_geometric

import torch
from planted import PLANTED, Clock
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool


class Motifs(nn.Module):
    def forward(self, edges, count):
        return self.triangles(edges, count) if PLANTED else torch.bincount(edges[0], minlength=count).float()[:, None]

    def triangles(self, edges, count):
        beside = {node: set() for node in range(count)}
        for a, b in edges.t().tolist():
            beside[a].add(b)
        found = [sum(len(beside[a] & beside[b]) for b in beside[a]) for a in range(count)]  # <- cause
        return torch.tensor(found)[:, None].float()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.motifs = Motifs()
        self.first, self.second, self.head = GCNConv(33, 128), GCNConv(128, 128), nn.Linear(128, 2)

    def forward(self, graphs):
        x = torch.cat([graphs.x, self.motifs(graphs.edge_index, graphs.num_nodes)], 1)
        x = self.first(x, graphs.edge_index).relu()
        x = self.second(x, graphs.edge_index).relu()
        return self.head(global_mean_pool(x, graphs.batch))


def graph(number):
    return Data(x=torch.randn(40, 32), edge_index=torch.randint(0, 40, (2, 160)), y=torch.tensor([number % 2]))


def main():
    torch.set_num_threads(1)
    clock, net = Clock(), Net()
    optimizer = torch.optim.Adam(net.parameters())
    batches = [Batch.from_data_list([graph(number) for number in range(32)]) for _ in range(16)]
    while True:
        for graphs in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(graphs), graphs.y).backward()
            optimizer.step()
            if not clock.step():
                return clock.tell()


if __name__ == "__main__":
    main()
