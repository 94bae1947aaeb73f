"""Stack samples that the agent takes itself, in a file beside the ring (side_files.py), a window at a time.

The file is JSON, in the shape of speedscope's files (https://www.speedscope.app/file-format-schema.json) as far as the
monitor reads them: one profile a thread, ``Thread <OS id> "<name>"``, with the samples in the order they were taken, a
list of frame numbers each, root first. Beside these: ``order`` and ``window``, which say whose it is, ``begin_ns`` and
``end_ns`` (monotonic), ``cpu_ns`` of the sampling thread, ``instants``, and ``cut``, how many samples were deeper than
MAX_DEPTH or of more threads than MAX_THREADS (``control/stack_windows.py``).
"""

from typing import Tuple

#: Bounds of what may be ordered: samples a second, and the length of a window in ms.
MAX_HZ = 20
WINDOW_MS = (200, 20_000)


def pack_sampling(rate_hz: int, window_ms: int) -> int:
    """The argument of the order to sample."""
    return rate_hz | window_ms << 16


def unpack_sampling(argument: int) -> Tuple[int, int]:
    """Samples a second and ms of a window. Raises ValueError when they are out of bounds."""
    rate_hz, window_ms = argument & 0xFFFF, argument >> 16
    if not (1 <= rate_hz <= MAX_HZ and WINDOW_MS[0] <= window_ms <= WINDOW_MS[1]):
        raise ValueError("%d Hz in windows of %d ms" % (rate_hz, window_ms))
    return rate_hz, window_ms
