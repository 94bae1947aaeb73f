"""A DDP training on gloo with a DataLoader, whose last rank is late; until it is ended."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Samples(torch.utils.data.Dataset):
    """Numbers that take a while."""

    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((64,), index / 1e7)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    is_late = dist.get_rank() == dist.get_world_size() - 1
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    for batch in torch.utils.data.DataLoader(Samples(), 8, num_workers=1):
        loss = model(batch).square().mean()
        if is_late:
            time.sleep(0.03)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
