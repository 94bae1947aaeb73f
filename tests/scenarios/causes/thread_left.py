"""A thread that uploads events waits for more of them, and is never told that the training is over."""
# category: job that does not end
# expects: not_ended
# seconds: 180

import queue
import threading

from plain import train
from until import options

events = queue.Queue()


def write_events(seconds):
    while True:
        try:
            if events.get(timeout=seconds) is None:
                return
        except queue.Empty:
            return


def main():
    args = options()
    threading.Thread(target=write_events, args=(args.seconds,)).start()
    train(6)
    if args.fixed:
        events.put(None)


if __name__ == "__main__":
    main()
