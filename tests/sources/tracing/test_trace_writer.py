"""A trace that cannot be written: cause and next step, and nothing is left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tuimon.errors import TraceError
from tuimon.sources.tracing import trace_writer
from tuimon.trace.raw import TakenBy


@pytest.mark.parametrize(("number", "hint"), [(errno.ENOSPC, "more room"), (errno.EROFS, "the right to write")])
def test_a_disk_that_takes_no_more(number: int, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text("{}")

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(trace_writer, "_copy", fails)
    with pytest.raises(TraceError, match="trace.json.gz: " + os.strerror(number)) as refused:
        trace_writer.write_trace(str(raw), str(tmp_path / "trace.json.gz"), TakenBy(), ([], [], []), 0)
    assert refused.value.hint is not None and hint in refused.value.hint
    assert os.listdir(tmp_path) == ["raw.json"]
