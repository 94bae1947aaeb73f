"""The published schemas are those of the types, and what is written keeps to the types."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.fleet_logs import Job, write
from docs.make_schema import FOLDER, texts
from tests.recorded_logs import LOGS
from tests.session.records import one_process, steps
from tests.views.tui.sheets.test_sheets import HISTORY
from tuimon.diagnosis.verdicts import fold
from tuimon.records import TracedSync, TracedWork, TraceTaken
from tuimon.sources.log.source import read_records
from tuimon.views.report.report import report_of
from tuimon.views.report.write import MAX_BYTES, as_json
from tuimon.views.report_types import Report

#: What DESIGN promises of a report, as paths.
CONTRACT = ("schema", "run", "ranks", "steps", "phases", "findings")


def test_the_files_are_those_of_the_types() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(texts())
    for path, text in texts().items():
        found = in_one_order(json.loads(path.read_text(encoding="utf-8")))
        assert found == in_one_order(json.loads(text)), f"{path.name} is out of date: make schema"


def in_one_order(value: Any) -> Any:
    """Versions of msgspec order alternatives differently."""
    if isinstance(value, dict):
        return {name: in_one_order(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted((in_one_order(each) for each in value), key=repr)
    return value


def keeps_to(kind: type, text: str) -> Any:
    """What the text says, of which the type knows every field."""
    shown = json.loads(text)
    assert json.loads(msgspec.json.encode(msgspec.json.decode(text, type=kind))) == shown
    return shown


@pytest.fixture(scope="module", params=LOGS[::4], ids=lambda path: path.name.partition(".")[0])
def log(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_reports_of_recorded_logs_keep_to_it_in_six_kilobytes(log: str, call) -> None:
    text = call("report", log, "--format", "json", "--brief").out
    assert len(text.encode()) <= MAX_BYTES
    shown = keeps_to(Report, text)
    assert shown["summary"].count(". ") >= 2 and shown["summary"].endswith((".", "…"))
    full = keeps_to(Report, call("report", log, "--format", "json").out)
    assert "left_out" not in full
    assert {name: full[name] for name in CONTRACT if name != "ranks"} == {
        name: shown[name] for name in CONTRACT if name != "ranks"
    }
    of_process = {each["pid"]: each for each in full["ranks"]}
    for short in shown["ranks"]:
        assert of_process[short["pid"]].items() >= (short | {"phases": of_process[short["pid"]]["phases"]}).items()
    assert full["facts"] == shown["facts"]


def test_of_many_ranks_those_that_hold_up_the_others_stay(tmp_path: Path) -> None:
    write(str(tmp_path), Job(nodes=24, ranks=2, seconds=6.0, workers=0, gpus=False, late=37))
    session, findings = fold(read_records(str(tmp_path)))
    report = report_of(session, findings, "logs")
    shown = keeps_to(Report, as_json([report], is_brief=True))
    assert len(as_json([report], is_brief=True).encode()) <= MAX_BYTES
    assert 37 in [rank["rank"] for rank in shown["ranks"]]
    assert len(shown["ranks"]) + shown["left_out"]["ranks"] == 48
    assert len(keeps_to(Report, as_json([report]))["ranks"]) == 48


def test_a_trace_and_memory_keep_to_it_too() -> None:
    work = [TracedWork("aten::mm", "forward", 3, 10**6, 10**6, "train.py:4")] * 40
    syncs = [TracedSync("cudaStreamSynchronize", "aten::item", "other", "train.py:5", 3, 10**6)] * 40
    trace = TraceTaken(
        t=2.0, pid=100, begin_s=1.0, end_s=2.0, steps=3, wanted=5, file="t.gz", operators=work, syncs=syncs, folded=70
    )
    session = one_process(steps(1.0, {"forward": 5, "backward": 5}), trace, HISTORY)
    report = report_of(session, [], "run.jsonl")
    whole = keeps_to(Report, as_json([report]))
    assert len(whole["traces"][0]["operators"]) == 40 and whole["memory"][0]["lines"]
    told = whole["traces"][0]["text"]
    assert told[0].startswith("Trace of 3 steps (5 were requested)")
    assert told[-1] == "70 more operators, kernels and waits are only in the file"
    shown = keeps_to(Report, as_json([report], is_brief=True))
    assert len(as_json([report], is_brief=True).encode()) <= MAX_BYTES
    for name in ("operators", "syncs"):
        assert len(shown["traces"][0][name]) + shown["left_out"][name] == 40
