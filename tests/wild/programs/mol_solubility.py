"""Trains a graph network on molecules with torch_geometric; planted: a transform finds all shortest paths per item."""

# expects: input_bound/no_workers
# package: torch_geometric
import networkx as nx
import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch import nn
from torch.utils.data import Dataset
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool
from torch_geometric.utils import to_networkx

ELEMENTS, BONDS, REACH = 5, 4, 8


class ShortestPathProfile:
    """Adds how many atoms lie 1, 2, ... bonds away from each atom."""

    def __call__(self, data):
        graph = to_networkx(data, to_undirected=True)
        profile = torch.zeros(data.num_nodes, REACH)
        for atom, lengths in nx.all_pairs_shortest_path_length(graph):  # <- cause
            for bonds in lengths.values():
                if 0 < bonds <= REACH:
                    profile[atom, bonds - 1] += 1  # <- cause
        data.x = torch.cat([data.x, profile], dim=1)
        return data


def random_molecule():
    """A random tree of atoms with up to three rings."""
    atoms = int(torch.randint(8, 15, ()))
    edges = [(i, int(torch.randint(max(0, i - 3), i, ()))) for i in range(1, atoms)]
    for _ in range(int(torch.randint(1, 4, ()))):
        a, b = torch.randint(atoms, (2,)).tolist()
        if a != b and (a, b) not in edges and (b, a) not in edges:
            edges.append((a, b))
    index = torch.tensor(edges).T
    bond = F.one_hot(torch.randint(BONDS, (len(edges),)), BONDS).float()
    element = torch.multinomial(torch.tensor([0.7, 0.12, 0.12, 0.03, 0.03]), atoms, replacement=True)
    return Data(
        x=F.one_hot(element, ELEMENTS).float(),
        edge_index=torch.cat([index, index.flip(0)], dim=1),
        edge_attr=torch.cat([bond, bond]),
        y=((element > 0).float().mean() * 4 - 0.15 * atoms).view(1),
    )


class Molecules(Dataset):
    def __init__(self, count, transform=None, pre_transform=None):
        self.items = [random_molecule() for _ in range(count)]
        if pre_transform is not None:
            self.items = [pre_transform(item) for item in self.items]
        self.transform = transform

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        return item if self.transform is None else self.transform(item.clone())


class GIN(nn.Module):
    def __init__(self, hidden=176, layers=5):
        super().__init__()
        self.embed = nn.Linear(ELEMENTS + REACH, hidden)
        self.convs = nn.ModuleList(GINEConv(self.mlp(hidden), edge_dim=BONDS) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    @staticmethod
    def mlp(hidden):
        return nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden))

    def forward(self, data):
        h = self.embed(data.x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = h + F.relu(norm(conv(h, data.edge_index, data.edge_attr)))
        return self.head(global_add_pool(h, data.batch)).squeeze(1)


torch.set_num_threads(1)
torch.manual_seed(0)
when = "transform" if PLANTED else "pre_transform"
loader = DataLoader(Molecules(640, **{when: ShortestPathProfile()}), batch_size=32, shuffle=True, drop_last=True)
model = GIN()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)

running, clock = True, Clock()
while running:
    for batch in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch), batch.y)
        loss.backward()
        optimizer.step()
        running = clock.step()
        if not running:
            break
clock.tell()
