"""A breakpoint has stayed in the loop; somebody comes after some seconds and types c."""
# category: interactive
# expects: goodput/prompt

import os
import pdb
import subprocess

import torch
import torch.nn.functional as F
from until import options, small_model, steps


def main():
    args = options()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in steps(args.seconds):
        x = torch.randn(64, 256)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 200 and not args.fixed:
            typed = subprocess.Popen(
                ["sh", "-c", f"sleep {args.seconds / 2}; echo c"], stdout=subprocess.PIPE, text=True
            )
            with open(os.devnull, "w") as screen:
                pdb.Pdb(stdin=typed.stdout, stdout=screen).set_trace()


if __name__ == "__main__":
    main()
