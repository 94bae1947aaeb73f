"""Two ranks that average their gradients by hand, one tensor at a time; fixed: after sixteen batches."""
# category: exchange between GPUs
# expects: comm_bound
# launch: torchrun 2

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from until import options, small_model, steps


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # <- cause
        parameter.grad /= dist.get_world_size()


def main():
    args = options()
    dist.init_process_group("gloo")
    model = small_model(768, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    every = 16 if args.fixed else 1
    going = torch.ones(1)
    for number in steps(10 * args.seconds):
        x = torch.randn(16, 768)
        F.mse_loss(model(x), x).backward()
        if number % every == every - 1:
            average_gradients(model)
            optimizer.step()
            optimizer.zero_grad()
        if number % 64 == 63:
            going.fill_(float(os.times().elapsed < main.end))
            dist.broadcast(going, 0)
            if not going.item():
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main.end = os.times().elapsed + options().seconds
    main()
