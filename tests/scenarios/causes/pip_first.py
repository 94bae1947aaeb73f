"""The program installs what it needs before it trains."""
# category: long installation
# expects: goodput/program

import subprocess
import sys

from plain import train
from until import options


def install(seconds):
    subprocess.check_call([sys.executable, "-c", f"import time; time.sleep({seconds})"])


def main():
    args = options()
    if not args.fixed:
        install(args.seconds / 2)
    train(args.seconds / 2)


if __name__ == "__main__":
    main()
