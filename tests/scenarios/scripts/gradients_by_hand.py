"""Two ranks that average their gradients by hand, one tensor at a time; fixed: all tensors as one."""
# category: exchange between GPUs
# expects: comm_bound
# launch: torchrun 2

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from laps import options, small_model, steps


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # <- cause
        parameter.grad /= dist.get_world_size()


def average_flattened(model):
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    begin = 0
    for gradient in gradients:
        gradient.copy_(flat[begin : begin + gradient.numel()].view_as(gradient))
        begin += gradient.numel()


def main():
    args = options()
    dist.init_process_group("gloo")
    model = small_model(768, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    average = average_flattened if args.fixed else average_gradients
    going = torch.ones(1)
    for number in steps(10 * args.seconds):
        x = torch.randn(16, 768)
        F.mse_loss(model(x), x).backward()
        average(model)
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
