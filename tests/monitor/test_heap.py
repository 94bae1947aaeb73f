"""How the threads of a monitor share memory."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, re, threading
from tuimon.monitor.heap import share_one_heap
share_one_heap()
gate = threading.Barrier(9)
def allocate():
    kept = [bytes(5000) for _ in range(50)]  # larger than what Python allocates by itself
    gate.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
libc = ctypes.CDLL(None)
libc.malloc_stats()
gate.wait()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have one heap")
def test_threads_do_not_make_heaps_of_their_own():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert [line for line in done.stderr.splitlines() if line.startswith("Arena")] == ["Arena 0:"]
