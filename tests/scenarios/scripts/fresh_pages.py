"""Operations on large tensors, whose memory glibc gives back to the kernel each time that it is freed."""
# expects: compute_bound_cpu/page_faults

import ctypes
from itertools import repeat

import torch
from laps import fit, options
from torch import nn

#: The settings of mallopt(3) that make malloc keep what is freed.
TRIM_THRESHOLD, MMAP_MAX = -1, -4


def main():
    args = options()
    if args.fixed:
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, -1)
    scale = nn.Parameter(torch.ones(512))
    optimizer = torch.optim.SGD([scale], lr=1e-3)
    x, y = torch.randn(20_000, 512), torch.zeros(20_000)

    def loss(x, y):
        return ((torch.relu(x * scale - 0.5) + x).mean(1) - y).square().mean()  # <- cause

    fit(args, optimizer, repeat((x, y)), loss)


main()
