"""CPU time split 60/30/10 over three functions of the main thread; a second thread uses 30 to its 70.

The truth is measured in here: a line of input is answered with the seconds so far, as JSON, and until the next line
nothing is used, so that whoever asks can read other counters at that moment however busy the machine is.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict

USED_S: defaultdict[str, float] = defaultdict(float)  # on a core
PASSED_S: defaultdict[str, float] = defaultdict(float)  # by the clock, which samples follow
TURN_S = 0.01
#: Cleared to end both threads' turns, each of which holds a lock.
GOES_ON = threading.Event()
MAIN, BESIDE = threading.Lock(), threading.Lock()


def spin(until_s: float) -> None:
    """Use CPU until this thread's clock says so."""
    while time.thread_time() < until_s:
        sum(range(20))


def sixty() -> None:
    """60 of 100."""
    spin(time.thread_time() + 0.6 * TURN_S)


def thirty() -> None:
    """30 of 100."""
    spin(time.thread_time() + 0.3 * TURN_S)


def ten() -> None:
    """10 of 100."""
    spin(time.thread_time() + 0.1 * TURN_S)


def beside() -> None:
    """Keeps at three sevenths of what the main thread has used."""
    while GOES_ON.wait():
        with BESIDE:
            lag_s = 3 / 7 * sum(USED_S[name] for name in PASSED_S) - USED_S["beside"]
            begin_s = time.thread_time()
            if lag_s > 0:
                spin(begin_s + min(lag_s, TURN_S))
            time.sleep(0.002)
            USED_S["beside"] += time.thread_time() - begin_s


def answer() -> None:
    """The truth, whenever it is asked for."""
    while sys.stdin.readline():
        GOES_ON.clear()
        with MAIN, BESIDE:
            print(json.dumps([USED_S, PASSED_S]), flush=True)
            sys.stdin.readline()
        GOES_ON.set()


def main() -> None:
    """Work for ever."""
    print("up", flush=True)
    for work in (beside, answer):
        threading.Thread(target=work, name=work.__name__, daemon=True).start()
    GOES_ON.set()
    while GOES_ON.wait():
        with MAIN:
            for function in (sixty, thirty, ten):
                begin_s, began_s = time.thread_time(), time.monotonic()
                function()
                USED_S[function.__name__] += time.thread_time() - begin_s
                PASSED_S[function.__name__] += time.monotonic() - began_s


if __name__ == "__main__":
    main()
