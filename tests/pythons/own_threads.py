"""A program, of any Python that the agent supports, that prints what it sees of its other threads."""

import json
import os
import threading

from tuimon.agent import own_threads


def waits(started, over):
    started.set()
    over.wait()


def other():
    """Is run by no thread."""


def main():
    started, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=waits, args=(started, over))
    thread.start()
    started.wait()
    seen = [
        own_threads.is_running(thread.ident, [waits.__code__]),
        own_threads.is_running(thread.ident, [other.__code__]),
        own_threads.is_in_file(__file__),
        own_threads.is_in_file(threading.__file__),
        own_threads.is_in_file("no such file"),
    ]
    over.set()
    thread.join()
    seen += [own_threads.is_running(thread.ident, [waits.__code__]), own_threads.is_in_file(threading.__file__)]
    print(json.dumps([own_threads.has_gil(), seen, len(os.listdir("/proc/self/fd"))]))


if __name__ == "__main__":
    main()
