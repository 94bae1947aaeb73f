"""Records: timestamped facts, each covering one window; the log file is this stream, one JSON object a line.

Every record carries ``type`` (the tag), ``t`` (end of its window, seconds of ``time.monotonic()``; the header
anchors that clock to wall time) and ``pid`` (the process it is about; 0 when it is about the machine).
``None`` means "not measured"; a number is always a measurement. Ratios are 0..1, or for CPU 1.0 = one core.

``run``: header, notices, end. ``processes``: facts, threads, machine, standstills. ``steps``: steps and DataLoaders.
``stacks``: stack samples. ``gpus``: counters and GPU time. ``torch``: memory, compilations, traces.
"""

from __future__ import annotations

from typing import Any, Union

from tuimon.records.base import *  # noqa: F403
from tuimon.records.base import Record
from tuimon.records.gpus import *  # noqa: F403
from tuimon.records.processes import *  # noqa: F403
from tuimon.records.run import *  # noqa: F403
from tuimon.records.run import Node
from tuimon.records.stacks import *  # noqa: F403
from tuimon.records.steps import *  # noqa: F403
from tuimon.records.torch import *  # noqa: F403

#: Any record that a log may hold.
AnyRecord: Any = Union[tuple(kind for kind in Record.__subclasses__() if kind is not Node)]  # noqa: UP007  (of 3.10)
