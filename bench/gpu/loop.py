"""A training for ``orders`` to look into: prints its pid once it trains, and at the end how many steps it made."""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

LEAK_BYTES = 1 << 20
#: More than any GPU has.
TOO_MUCH_BYTES = 1 << 45


def main() -> None:
    """Train for so long."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--leaks", action="store_true", help="keep a block of every step")
    parser.add_argument("--ends-in-oom", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(8)]).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    inputs, target = torch.randn(256, 512, device=args.device), torch.randn(256, 512, device=args.device)
    kept, steps, begun_s = [], 0, time.monotonic()
    while time.monotonic() - begun_s < args.seconds:
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), target)
        loss.backward()
        optimizer.step()
        if args.leaks:
            kept.append(torch.empty(LEAK_BYTES, dtype=torch.uint8, device=args.device))
            time.sleep(0.02)
        steps += 1
        if steps == 1:
            print(os.getpid(), flush=True)
        if args.device != "cpu" and steps % 50 == 0:
            torch.cuda.synchronize()
    if args.ends_in_oom:
        torch.empty(TOO_MUCH_BYTES, dtype=torch.uint8, device=args.device)
    print(steps, flush=True)


if __name__ == "__main__":
    main()
