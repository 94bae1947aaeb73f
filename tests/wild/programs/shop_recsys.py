"""Trains two towers for a shop in functional PyTorch; planted: an Adam by hand that updates all rows of the tables."""

# expects: optimizer_bound
# package: torch
from itertools import pairwise

import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch.func import grad_and_value

USERS, ITEMS, DIM, HISTORY, BATCH = 30_000, 120_000, 32, 4, 768
HIDDEN, OUT = 320, 64
LR, BETA1, BETA2, EPS = 2e-3, 0.9, 0.99, 1e-8


def init():
    dense = {}
    for side, width in (("user", 2 * DIM), ("item", DIM)):
        for layer, (cin, cout) in enumerate(pairwise((width, HIDDEN, HIDDEN, OUT)), 1):
            dense[f"{side}{layer}"] = torch.randn(cin, cout) / cin**0.5
    return dense, {"user": 0.05 * torch.randn(USERS, DIM), "item": 0.05 * torch.randn(ITEMS, DIM)}


def tower(dense, x, side):
    hidden = F.gelu(x @ dense[f"{side}1"])
    hidden = hidden + F.gelu(hidden @ dense[f"{side}2"])
    return F.normalize(hidden @ dense[f"{side}3"], dim=-1)


def loss_fn(dense, rows, where):
    user = rows["user"][where["user"]]
    history = rows["item"][where["history"]].mean(dim=1)
    queries = tower(dense, torch.cat([user, history], dim=1), "user")
    keys = tower(dense, rows["item"][where["target"]], "item")
    return F.cross_entropy(queries @ keys.T / 0.07, torch.arange(len(queries)))


def batches():
    """Endless: the rows that a batch uses, and where in these each value is."""
    while True:
        ids, where = {}, {}
        ids["user"], where["user"] = torch.randint(USERS, (BATCH,)).unique(return_inverse=True)
        items = (torch.rand(BATCH, HISTORY + 1) ** 2 * ITEMS).long()
        ids["item"], inverse = items.unique(return_inverse=True)
        where["history"], where["target"] = inverse[:, :HISTORY], inverse[:, HISTORY]
        yield ids, where


def moments(params):
    return {name: (torch.zeros_like(values), torch.zeros_like(values)) for name, values in params.items()}


def update_dense(params, grads, state, t):
    for name, grad in grads.items():
        m, v = state[name]
        m.lerp_(grad, 1 - BETA1)
        v.lerp_(grad * grad, 1 - BETA2)
        params[name].addcdiv_(m / (1 - BETA1**t), (v / (1 - BETA2**t)).sqrt_().add_(EPS), value=-LR)


def update_tables(tables, ids, grads, state, t):
    for name, grad in grads.items():
        m, v = state[name]
        full = torch.zeros_like(tables[name])
        full[ids[name]] = grad
        m.mul_(BETA1).add_(full, alpha=1 - BETA1)  # <- cause
        v.mul_(BETA2).addcmul_(full, full, value=1 - BETA2)  # <- cause
        tables[name].addcdiv_(m / (1 - BETA1**t), (v / (1 - BETA2**t)).sqrt_().add_(EPS), value=-LR)  # <- cause


def update_rows(tables, ids, grads, state, t):
    for name, grad in grads.items():
        (m, v), rows = state[name], ids[name]
        new_m, new_v = m[rows].lerp_(grad, 1 - BETA1), v[rows].lerp_(grad * grad, 1 - BETA2)
        m[rows], v[rows] = new_m, new_v
        tables[name][rows] -= LR * (new_m / (1 - BETA1**t)) / ((new_v / (1 - BETA2**t)).sqrt_() + EPS)


def main():
    torch.manual_seed(0)
    dense, tables = init()
    dense_state, table_state = moments(dense), moments(tables)
    step = grad_and_value(loss_fn, argnums=(0, 1))

    clock = Clock()
    for t, (ids, where) in enumerate(batches(), 1):
        rows = {name: table[ids[name]] for name, table in tables.items()}
        (dense_grads, row_grads), loss = step(dense, rows, where)
        update_dense(dense, dense_grads, dense_state, t)
        (update_tables if PLANTED else update_rows)(tables, ids, row_grads, table_state, t)
        if t % 100 == 0:
            print(f"step {t} loss {loss.item():.4f}")
        if not clock.step():
            break
    clock.report()


if __name__ == "__main__":
    main()
