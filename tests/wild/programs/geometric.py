"""torch_geometric: a transform finds neighbours of each point by comparing all pairs in Python."""
# expects: input_bound
# package: torch_geometric

import torch
from planted import PLANTED, Clock
from torch import nn
from torch_geometric.data import Data, Dataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


class Clouds(Dataset):
    def __init__(self):
        super().__init__()
        self.clouds = [
            Data(x=torch.randn(24, 3), edge_index=torch.randint(0, 24, (2, 100)), y=torch.tensor([index % 4]))
            for index in range(256)
        ]

    def len(self):
        return 10_000

    def get(self, index):
        cloud = self.clouds[index % 256]
        return Data(x=cloud.x, edge_index=self.neighbours(cloud.x), y=cloud.y) if PLANTED else cloud

    def neighbours(self, points):
        pairs = []
        rows = points.tolist()
        for i, a in enumerate(rows):
            for j, b in enumerate(rows):
                if sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) < 2:  # <- cause
                    pairs.append((i, j))  # <- cause
        return torch.tensor(pairs).T


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = GCNConv(3, 128), GCNConv(128, 128), nn.Linear(128, 4)

    def forward(self, data):
        x = self.first(data.x, data.edge_index).relu()
        x = self.second(x, data.edge_index).relu()
        return self.head(global_mean_pool(x, data.batch))


def main():
    clock = Clock()
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    while True:
        for batch in DataLoader(Clouds(), batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(batch), batch.y)
            loss.backward()
            optimizer.step()
            if not clock.step():
                return clock.report()


if __name__ == "__main__":
    main()
