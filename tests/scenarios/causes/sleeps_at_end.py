"""The container must not end, so the program sleeps after its training."""
# category: job that does not end
# expects: not_ended
# seconds: 180

import time

from plain import train
from until import options


def main():
    args = options()
    train(6)
    end = time.time() + (1 if args.fixed else args.seconds)
    while time.time() < end:
        time.sleep(5)  # <- cause


if __name__ == "__main__":
    main()
