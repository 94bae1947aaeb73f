"""A watcher in a thread is joined, and waits for an event that nobody sets."""
# category: job that does not end
# expects: not_ended
# seconds: 180

import threading

from plain import train
from until import options


class Watcher(threading.Thread):
    def __init__(self, seconds):
        super().__init__(daemon=True)
        self.over, self.seconds = threading.Event(), seconds

    def run(self):
        self.over.wait(self.seconds)


def main():
    args = options()
    watcher = Watcher(args.seconds)
    watcher.start()
    train(6)
    if args.fixed:
        watcher.over.set()
    watcher.join()  # <- cause


if __name__ == "__main__":
    main()
