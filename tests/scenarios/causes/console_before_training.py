"""A console is opened on the data before the training, and is left after some seconds."""
# category: interactive
# expects: goodput/prompt

import code
import os
import subprocess

from plain import train
from until import options


def main():
    args = options()
    if not args.fixed:
        typed = subprocess.Popen(["sh", "-c", f"sleep {args.seconds / 2}"], stdout=subprocess.PIPE)
        os.dup2(typed.stdout.fileno(), 0)
        code.interact(banner="", exitmsg="", local={"data": list(range(4))})
    train(args.seconds / 2)


if __name__ == "__main__":
    main()
