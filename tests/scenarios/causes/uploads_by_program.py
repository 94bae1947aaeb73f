"""A copying program, as rclone is one, is started after the training and waited for."""
# category: uploads
# expects: goodput/program

import subprocess
import sys

from plain import train
from until import options


def main():
    args = options()
    train(args.seconds / 2)
    seconds = 0.2 if args.fixed else args.seconds / 2
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({seconds})"], check=True)


if __name__ == "__main__":
    main()
