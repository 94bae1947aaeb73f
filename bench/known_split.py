"""CPU time split 60/30/10 over three functions of the main thread; a second thread uses 30 to its 70.

The truth is measured in here: each line of input is answered with the CPU seconds so far, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict

USED_S: defaultdict[str, float] = defaultdict(float)
TURN_S = 0.01


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
    while True:
        lag_s = 3 / 7 * sum(USED_S[name] for name in ("sixty", "thirty", "ten")) - USED_S["beside"]
        begin_s = time.thread_time()
        if lag_s > 0:
            spin(begin_s + min(lag_s, TURN_S))
        time.sleep(0.002)
        USED_S["beside"] += time.thread_time() - begin_s


def answer() -> None:
    """The truth, whenever it is asked for."""
    for _ in sys.stdin:
        print(json.dumps(USED_S), flush=True)


def main() -> None:
    """Work for ever."""
    print("up", flush=True)
    for work in (beside, answer):
        threading.Thread(target=work, name=work.__name__, daemon=True).start()
    while True:
        for function in (sixty, thirty, ten):
            begin_s = time.thread_time()
            function()
            USED_S[function.__name__] += time.thread_time() - begin_s


if __name__ == "__main__":
    main()
