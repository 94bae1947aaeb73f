"""The extra time of a training step after other work of its thread, which leaves it cold caches.

Without that work the thread's next step finds its code and data where it left them: work that goes takes more with it
than its own time. Only steps of some milliseconds notice.
"""

from __future__ import annotations

import math

from tuimon.diagnosis.threshold import Threshold

COLD_MS = Threshold(
    1.15,
    "ms that a step takes more after a long stretch of other work or waiting than right after the step before",
    "bench/cold.py: 0.7 to 1.6 ms after 100 ms, in five models of 0.6 to 5.4 ms a step, whatever the work was; measured"
    " on two virtual cores, and on no other machine",
)
COOLING_MS = Threshold(
    12.0,
    "ms of other work after which a step is 63 % as cold as after a long stretch of it",
    "bench/cold.py: 0.0 to 0.5 ms more after 1 ms, 0.1 to 0.7 after 3, 0.4 to 1.0 after 10, 0.7 to 1.5 after 30",
)
#: Part of a step that is always left: our choice; the smallest model measured was 0.4 of its cold step.
_ALWAYS_LEFT = 0.5


def warmed_ms(left_ms: float, removed_ms: float, staying_ms: float = 0.0, every: int = 1) -> float:
    """How much of ``left_ms`` of a step goes as well when ``removed_ms`` of other work goes, and ``staying_ms`` do not.

    The work is that of a step on average; it comes once in ``every`` steps.

    Worked example: 17 ms of parsing before each 2 ms of training. The training takes 0.87 ms less without it.
    """
    warmer_ms = _cold_ms((removed_ms + staying_ms) * every) - _cold_ms(staying_ms * every)
    return min(warmer_ms, (1.0 - _ALWAYS_LEFT) * left_ms) / every


def _cold_ms(other_ms: float) -> float:
    return COLD_MS * (1.0 - math.exp(-max(0.0, other_ms) / COOLING_MS))
