"""Two ranks with many parameters for little computing."""

import contextlib
import os

import torch
import torch.distributed as dist
from course import Computing, is_over
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.set_num_threads(1)
steps = 0


def loss_of(output, y):
    global steps
    steps += 1
    if steps % 48 == 0:
        over = torch.tensor(float(is_over()))
        dist.broadcast(over, 0)
        if over:
            dist.destroy_process_group()
            os._exit(0)
    return nn.functional.mse_loss(output, y)


model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 60_000), nn.Linear(60_000, 64), Computing(64, 60)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.randn(100_000, 64), torch.randn(100_000, 8)), batch_size=4)
# <- the code
