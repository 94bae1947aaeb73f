"""A program, of any Python that the agent supports: prints what it sees of its threads, and samples of their stacks."""

import json
import os
import sys
import tempfile
import threading
import time

from tuimon.agent import own_threads, runtime
from tuimon.agent.control import orders
from tuimon.agent.ring import control_words, files

SAMPLE = control_words.Command.SAMPLE


def order(words, number, argument):
    """What a monitor writes."""
    at = control_words.slot_word(SAMPLE)
    check = control_words.check_of(SAMPLE, number, argument)
    for ahead, word in enumerate((number, argument, check, time.monotonic_ns())):
        words[at + ahead] = word
    words[control_words.BELL_WORD] += 1
    orders.attend()


def busy(words):
    """Works until there are two windows, or there will be none."""
    answer = control_words.answer_in(words, SAMPLE)
    while answer.state == control_words.State.WORKING and answer.value < 2:
        sum(range(1000))
        words[control_words.slot_word(SAMPLE) + 3] = time.monotonic_ns()
        answer = control_words.answer_in(words, SAMPLE)
    return answer.state


def left():
    """Threads once the sampling one has ended: the main thread and the one that waits."""
    until_s = time.monotonic() + 60
    while (threads := len(os.listdir("/proc/self/task"))) > 2 and time.monotonic() < until_s:
        time.sleep(0.01)
    return threads


def waits(started, over):
    started.set()
    over.wait()


def other():
    """Is run by no thread."""


def sampled():
    """The state of an order to sample all stacks, those of its latest window by thread, and the threads afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TUIMON_RING_DIR"] = os.path.join(folder, "rings")
        runtime.on = True
        runtime.open_ring()
        words = runtime.writer().control_words()
        order(words, 1, files.pack_sampling(20, 200))
        state = busy(words)
        stacks = {}
        if state == control_words.State.WORKING:
            with open(files.side_file(runtime.writer().path, files.STACKS), encoding="utf-8") as file:
                window = json.load(file)
            names = [frame["name"] for frame in window["shared"]["frames"]]
            for profile in window["profiles"]:
                stacks[profile["name"]] = [names[at] for at in profile["samples"][-1]]
        order(words, 2, 0)
        threads = left()
        runtime.stop()
    return int(state), stacks, threads


def main():
    started, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=waits, name="parked", args=(started, over))
    thread.start()
    started.wait()
    seen = [
        own_threads.is_running(thread.ident, [waits.__code__]),
        own_threads.is_running(thread.ident, [other.__code__]),
        own_threads.is_in_file(__file__),
        own_threads.is_in_file(threading.__file__),
        own_threads.is_in_file("no such file"),
    ]
    opened = len(os.listdir("/proc/self/fd"))
    state, stacks, threads = sampled()
    over.set()
    thread.join()
    seen += [own_threads.is_running(thread.ident, [waits.__code__]), own_threads.is_in_file(threading.__file__)]
    print(json.dumps([own_threads.has_gil(), seen, opened, state, stacks, threads, os.getpid()]))


if __name__ == "__main__":
    sys.exit(main())
