"""A breakpoint has stayed in the loop; somebody comes after some seconds and types c."""
# category: interactive
# expects: goodput/prompt

import os
import pdb
import subprocess

from plain import train
from until import options


def main():
    args = options()

    def after(number, loss, model):
        if number == 200 and not args.fixed:
            words = ["sh", "-c", f"sleep {args.seconds / 2}; echo c"]
            typed = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            with open(os.devnull, "w") as screen:
                pdb.Pdb(stdin=typed.stdout, stdout=screen).set_trace()

    train(args.seconds, after)


if __name__ == "__main__":
    main()
