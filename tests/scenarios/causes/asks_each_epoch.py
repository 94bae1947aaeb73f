"""After each epoch the program asks whether to go on, and somebody answers seconds later."""
# category: interactive
# expects: goodput/prompt

import os
import subprocess

import torch
import torch.nn.functional as F
from until import options, small_model, steps


def main():
    args = options()
    if not args.fixed:
        answers = subprocess.Popen(["sh", "-c", "while sleep 3; do echo y || exit; done"], stdout=subprocess.PIPE)
        os.dup2(answers.stdout.fileno(), 0)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in steps(args.seconds):
        x = torch.randn(64, 256)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 40 == 39 and not args.fixed and input("go on? ") != "y":
            break


if __name__ == "__main__":
    main()
