"""What Perfetto would read of an export."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from tuimon.records import Record
from tuimon.views.export.perfetto import write_perfetto


def trace_events(records: Iterable[Record]) -> list[dict[str, Any]]:  # Any: JSON
    """The events of the file."""
    out = io.StringIO()
    write_perfetto(records, out)
    found: list[dict[str, Any]] = json.loads(out.getvalue())["traceEvents"]
    return found
