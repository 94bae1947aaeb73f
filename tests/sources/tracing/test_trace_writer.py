"""A trace that cannot be written: cause and next step, and nothing is left behind."""

from __future__ import annotations

import errno
import gzip
import json
import os
from pathlib import Path

import pytest

from tests.sources.log.literal_log import HEADER, STEPS
from tests.sources.log.literal_log import write as write_log
from tuimon.errors import TuimonError
from tuimon.sources.tracing import trace_writer
from tuimon.trace.events import Stretch
from tuimon.trace.raw import TakenBy


@pytest.mark.parametrize(("number", "hint"), [(errno.ENOSPC, "more room"), (errno.EROFS, "the right to write")])
def test_a_disk_that_takes_no_more(number: int, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text("{}")

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(trace_writer, "copy_rest", fails)
    with pytest.raises(TuimonError, match="trace.json.gz cannot be written: " + os.strerror(number)) as refused:
        trace_writer.write_trace(str(raw), str(tmp_path / "trace.json.gz"), TakenBy(), ([], [], []), 0)
    assert refused.value.hint is not None and hint in refused.value.hint
    assert os.listdir(tmp_path) == ["raw.json"]


def test_a_log_is_not_replaced_by_its_trace(tmp_path: Path) -> None:
    raw, log = tmp_path / "raw.json", write_log(tmp_path / "run.jsonl", HEADER, STEPS)
    raw.write_text('{"traceEvents": []}')
    before = log.read_bytes()
    for force in (False, True):
        with pytest.raises(TuimonError, match="is a tuimon log"):
            trace_writer.write_trace(str(raw), str(log), TakenBy(), ([], [], []), 0, force=force)
    (tmp_path / "t.json.gz").write_text("the user's own")
    with pytest.raises(TuimonError, match="exists"):
        trace_writer.write_trace(str(raw), str(tmp_path / "t.json.gz"), TakenBy(), ([], [], []), 0)
    assert log.read_bytes() == before and (tmp_path / "t.json.gz").read_text() == "the user's own"
    assert sorted(os.listdir(tmp_path)) == ["raw.json", "run.jsonl", "t.json.gz"]


@pytest.mark.parametrize("form", ['{"baseTimeNanoseconds": 5000, %s}', '{%s, "baseTimeNanoseconds": 5000}'])
@pytest.mark.parametrize("filling", [0, trace_writer.HEAD_BYTES])
def test_times_count_from_the_base_wherever_the_file_tells_it(form: str, filling: int, tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 4.0, "dur": 1.0, "args": {"of": "-" * filling}}]
    raw, path = tmp_path / "raw.json", tmp_path / "trace.json.gz"
    raw.write_text(form % f'"traceEvents": {json.dumps(events)}')
    trace_writer.write_trace(str(raw), str(path), TakenBy(), ([Stretch("step 1", 2000, 4000)], [], []), 6000)
    with gzip.open(path) as file:
        written = json.load(file)
    assert written["baseTimeNanoseconds"] == 5000 and written["traceEvents"][-1] == events[0]
    assert [(event["ts"], event["dur"]) for event in written["traceEvents"] if event.get("cat") == "tuimon_step"] == [
        (3.0, 2.0)
    ]
