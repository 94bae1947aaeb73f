"""The training is over, and its program does not end."""

import queue
import threading
import time

from laps import options, train

events = queue.Queue()


# program: sleeps_at_end
# category: job that does not end
# expects: not_ended
# seconds: 180
def sleeps_at_end(args):
    """The container must not end, so the program sleeps after its training."""
    train(6)
    end = time.time() + (1 if args.fixed else args.seconds)
    while time.time() < end:
        time.sleep(5)  # <- cause


# program: thread_left
# category: job that does not end
# expects: not_ended
# seconds: 180
def thread_left(args):
    """A thread that uploads events waits for more of them, and is never told that the training is over."""
    threading.Thread(target=write_events, args=(args.seconds,)).start()
    train(6)
    if args.fixed:
        events.put(None)


def write_events(seconds):
    while True:
        try:
            if events.get(timeout=seconds) is None:
                return
        except queue.Empty:
            return


# program: waits_for_event
# category: job that does not end
# expects: not_ended
# seconds: 180
def waits_for_event(args):
    """A watcher in a thread is joined, and waits for an event that nobody sets."""
    watcher = Watcher(args.seconds)
    watcher.start()
    train(6)
    if args.fixed:
        watcher.over.set()
    watcher.join()  # <- cause


class Watcher(threading.Thread):
    def __init__(self, seconds):
        super().__init__(daemon=True)
        self.over, self.seconds = threading.Event(), seconds

    def run(self):
        self.over.wait(self.seconds)


if __name__ == "__main__":
    args = options()
    globals()[args.program](args)
