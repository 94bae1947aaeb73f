"""A process to be sampled: short steps with pauses, idle threads beside them; answers each line with its step time.

The answer is the median length of the steps since the last line, in microseconds of CPU work done at full speed.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time

WORK = 20_000


def wait(depth: int) -> None:
    """Idle at the bottom of a stack of usual depth."""
    if depth:
        wait(depth - 1)
    else:
        threading.Event().wait()


def main() -> None:
    """Step until the input ends: ``sampled.py THREADS PAUSE_S``."""
    threads, pause_s = int(sys.argv[1]), float(sys.argv[2])
    for _ in range(threads - 1):
        threading.Thread(target=wait, args=(10,), daemon=True).start()
    times: list[int] = []
    ended = threading.Event()

    def answer() -> None:
        for _ in sys.stdin:
            so_far, times[:] = times[:], []
            print(statistics.median(so_far) if so_far else 0.0, flush=True)
        ended.set()

    print("up", flush=True)
    threading.Thread(target=answer, daemon=True).start()
    while not ended.is_set():
        begin_ns = time.perf_counter_ns()
        sum(range(WORK))
        times.append((time.perf_counter_ns() - begin_ns) // 1000)
        time.sleep(pause_s)


if __name__ == "__main__":
    main()
