"""Trains two tasks in turn on shared item vectors with two optimizers; planted: row-by-row Adagrad for the vectors."""

# expects: optimizer_bound
# package: torch
import torch
from planted import PLANTED, Clock
from torch import nn

ITEMS, DIM, BATCH, SLOTS = 5000, 64, 64, 6


class RowAdagrad(torch.optim.Optimizer):
    """Adagrad with one accumulator per row that updates only the rows that were used."""

    def __init__(self, params, lr=0.05, eps=1e-8):
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["sum"] = torch.zeros(len(param))
                grad = param.grad.coalesce()
                rows, values = grad.indices()[0], grad.values()
                if PLANTED:
                    self.update_rows(param, rows, values, state["sum"], group)
                else:
                    total = state["sum"].index_add_(0, rows, values.pow(2).mean(dim=1))[rows]
                    scale = -group["lr"] / (total.sqrt() + group["eps"])
                    param.index_add_(0, rows, values * scale.unsqueeze(1))

    @staticmethod
    def update_rows(param, rows, values, total, group):
        for row, value in zip(rows.tolist(), values, strict=True):
            total[row] += value.pow(2).mean()  # <- cause
            scale = group["lr"] / (total[row].sqrt().item() + group["eps"])  # <- cause
            param[row].sub_(value, alpha=scale)  # <- cause


class MultiTask(nn.Module):
    def __init__(self, hidden=640):
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, sparse=True)
        self.trunk = nn.Sequential(
            nn.Linear(SLOTS * DIM, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.heads = nn.ModuleDict({"click": nn.Linear(hidden, 1), "rating": nn.Linear(hidden, 1)})

    def forward(self, items, task):
        return self.heads[task](self.trunk(self.items(items).flatten(1))).squeeze(1)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MultiTask()
    dense = [*model.trunk.parameters(), *model.heads.parameters()]
    dense_optimizer = torch.optim.Adam(dense, lr=1e-3, fused=True)
    item_optimizer = RowAdagrad(model.items.parameters())
    criteria = {"click": nn.BCEWithLogitsLoss(), "rating": nn.MSELoss()}

    items = torch.randint(ITEMS, (300, BATCH, SLOTS))
    targets = {"click": torch.randint(2, (300, BATCH)).float(), "rating": torch.randn(300, BATCH)}
    tasks = ("click", "rating")

    running, clock = True, Clock()
    while running:
        for i, batch in enumerate(items):
            task = tasks[i % 2]
            loss = criteria[task](model(batch, task), targets[task][i])
            dense_optimizer.zero_grad()
            item_optimizer.zero_grad()
            loss.backward()
            dense_optimizer.step()
            item_optimizer.step()
            running = clock.step()
            if not running:
                break
    clock.tell()


if __name__ == "__main__":
    main()
