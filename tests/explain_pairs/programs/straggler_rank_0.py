"""Two ranks, of which the first draws images."""

import os
import time

import torch
import torch.distributed as dist
from course import Training, is_over
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
training = Training(ms=12)
training.model = DistributedDataParallel(training.model)
loader = DataLoader(TensorDataset(torch.randn(100_000, 64), torch.randn(100_000, 1)), batch_size=16)


def train_step(x, y):
    over = torch.tensor(float(is_over()))
    if training.steps % 50 == 49:
        dist.broadcast(over, 0)
        if over:
            dist.destroy_process_group()
            os._exit(0)
    training.steps += 1
    loss = training.model(x).square().mean()
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()


def write_images(x):
    time.sleep(0.015)


training.steps = 0
# <- the code
