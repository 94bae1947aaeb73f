"""After each epoch the program asks whether to go on, and somebody answers two seconds later."""
# category: interactive
# expects: goodput/prompt

import os
import subprocess

import torch
import torch.nn.functional as F
from until import options, small_model, steps


class Somebody:
    def __init__(self):
        words = ["sh", "-c", "while read asked; do sleep 2; echo y; done"]
        self.there = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.dup2(self.there.stdout.fileno(), 0)

    def agrees(self):
        self.there.stdin.write(b"?\n")
        self.there.stdin.flush()
        return input("go on? ") == "y"


def main():
    args = options()
    somebody = Somebody()
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in steps(args.seconds):
        x = torch.randn(64, 256)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 50 == 49 and not args.fixed and not somebody.agrees():
            break


if __name__ == "__main__":
    main()
