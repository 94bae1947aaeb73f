"""After each epoch the program asks whether to go on, and somebody answers two seconds later."""
# category: interactive
# expects: goodput/prompt

import os
import subprocess

from plain import train
from until import options


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
    train(args.seconds, lambda number, *_: number % 50 == 49 and not args.fixed and not somebody.agrees())


if __name__ == "__main__":
    main()
