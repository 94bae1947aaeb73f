"""The runner: which cases it tries, what it keeps, ends and prints."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tests.scenarios.streams import STREAMS, judged
from tests.truth import __main__ as command
from tests.truth import judging, running
from tests.truth.judging import COLUMNS, Judgement
from tests.truth.kind import Column, Kind, chosen, head, line, marked, run
from tests.truth.running import Failed, finished, gained_by, has_begun, kept, started, truth_of
from tests.waiting import alive, until


class Number(NamedTuple):
    """A case that is right if it is even."""

    name: str
    value: int


class Numbers(Kind[Number, Number]):
    """Numbers."""

    columns = (
        Column("name", 8, lambda row: row.name),
        Column("value", -6, lambda row: marked(row.value, row.value % 2 == 0)),
    )
    recorded: list[str] = []  # noqa: RUF012

    def cases(self, args: argparse.Namespace) -> Sequence[Number]:
        return [Number("one", 1), Number("two", 2), Number("two_more", 4), Number("none", 0)]

    def judged(self, case: Number, args: argparse.Namespace) -> Iterator[Number]:
        if not case.value:
            raise Failed("it has no value")
        (args.folder / case.name).write_text("tried")
        yield case

    def is_recorded(self, case: Number) -> bool:
        return case.name in self.recorded

    def record(self, case: Number, rows: Sequence[Number], args: argparse.Namespace) -> None:
        self.recorded.append(case.name)

    def totals(self, rows: Sequence[Number]) -> list[str]:
        return [f"sum {sum(row.value for row in rows)}"]

    def passed(self, rows: Sequence[Number]) -> bool:
        return all(row.value % 2 == 0 for row in rows)


@pytest.mark.parametrize("jobs", ["--jobs=1", "--jobs=2"])
def test_cases_are_rows_of_a_table_and_what_fails_is_told(
    jobs: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(Numbers(), "numbers", ["one", "two", jobs, f"--keep={tmp_path / 'kept'}"]) == 1
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == sorted(
        ["name       value", "one          1 !", "two            2", "", "sum 3"]
    )
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["one", "two"]
    assert run(Numbers(), "numbers", ["two", jobs]) == 0
    assert run(Numbers(), "numbers", ["two", "none", jobs]) == 1
    assert capsys.readouterr().err == "none: it has no value\n"


def test_a_name_that_no_case_has_is_the_beginning_of_some() -> None:
    cases = Numbers().cases(argparse.Namespace())
    assert [case.name for case in chosen(cases, ["two"])] == ["two"]
    assert [case.name for case in chosen(cases, ["tw", "one"])] == ["one", "two", "two_more"]
    assert chosen(cases, []) == cases
    with pytest.raises(SystemExit):
        run(Numbers(), "numbers", ["three"])


def test_only_what_is_missing_is_recorded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Numbers, "recorded", ["two"])
    assert run(Numbers(), "numbers", ["t", "--record", "--missing"]) == 0
    assert Numbers.recorded == ["two", "two_more"]
    assert run(Numbers(), "numbers", ["t", "--record", "--missing"]) == 0
    assert Numbers.recorded == ["two", "two_more"] and capsys.readouterr().out.endswith("nothing is missing\n")
    assert run(Numbers(), "numbers", ["t", "--record"]) == 0
    assert Numbers.recorded == ["two", "two_more", "two", "two_more"]


@pytest.mark.parametrize("name", command.KINDS)
def test_each_kind_has_a_table_and_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main([name, "--help"])
    assert "--keep" in capsys.readouterr().out
    assert head(command.KINDS[name].columns).strip()
    with pytest.raises(SystemExit):
        command.main([])
    assert f"  {name}" in capsys.readouterr().out


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    values = iter((1, 2))
    assert [kept(tmp_path / "a.json", lambda: {"value": next(values)}) for _ in range(2)] == [{"value": 1}] * 2
    with pytest.raises(ZeroDivisionError):
        kept(tmp_path / "b.json", lambda: 1 / 0)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_command_that_fails_or_does_not_end_says_why() -> None:
    assert finished([sys.executable, "-c", "print('done')"]) == "done\n"
    with pytest.raises(Failed, match=r"exit code 3\s+broken"):
        finished([sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"])
    with pytest.raises(Failed, match=r"no end after 0\.2 s"):
        finished([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)


#: Starts a child of its group and one of a session of its own; prints their process ids.
_PARENT = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
print(*[child.pid for child in children], flush=True)
time.sleep(600)
"""


def test_what_a_command_started_is_ended_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with started([sys.executable, "-c", _PARENT], log, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        of_group, by_log = map(int, process.stdout.readline().split())
        assert (os.getpgid(of_group), os.getpgid(by_log)) == (process.pid, by_log)
        ended = {"type": "process", "pid": os.getpid(), "ended": True}
        records = [{"type": "process", "pid": os.getpid()}, ended, {"type": "process", "pid": by_log}]
        log.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"torn')
    for pid in (process.pid, of_group, by_log):
        until(lambda pid=pid: not alive(pid), f"the end of {pid}")


def test_what_a_program_tells_is_found_behind_its_progress_bar() -> None:
    bar = "  0%|          | 0/1000 [00:00<?, ?it/s]"
    assert has_begun(f"loading\n{bar}training\n") and not has_begun(f"loading\n{bar}\n")
    assert truth_of(f'{bar}{{"steps": 9, "step_ms": 2.0, "shares": {{}}}}\n').steps == 9
    with pytest.raises(Failed, match="no truth"):
        truth_of("loading\n")


def test_what_changes_gain_is_measured_between_two_runs_of_the_command_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_ms = {"train": iter((10.0, 14.0)), "half": iter((6.0,)), "none": iter((4.0,))}
    told = '{{"steps": 100, "step_ms": {}, "shares": {{}}}}'.format
    monkeypatch.setattr(running, "finished", lambda words: told(next(steps_ms[words[0]])))
    assert gained_by("a", ["train"], {"a": ["half"], "b": ["none"]}, tmp_path) == {"a": 2.0, "b": 3.0}


# -- judgements


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """A training that waits for its loader."""
    stream = next(stream for stream in STREAMS if stream.name == "starved by its loader")
    return judged(stream, tmp_path_factory.mktemp("stream"), 6.0)


def test_what_is_wrong_is_marked_in_the_table(row: Judgement) -> None:
    assert "!" not in line(COLUMNS, row)
    wrong = replace(row, right=False, place_right=False, steps=row.steps + 1, false_alarms=("hang",))
    assert line(COLUMNS, wrong).count(" !") == 3 and "hang" in line(COLUMNS, wrong)
    assert judging.totals([row, wrong])[:3] == [
        "verdict right   1 of 2",
        "place right     1 of 2",
        "false alarms    in 1 of 2 runs, 0 of 0 healthy ones",
    ]


@pytest.mark.parametrize(("gain", "doubtful"), [(0.94, True), (1.3, False), (None, False)])
def test_a_fault_without_which_a_program_is_hardly_faster_is_told(
    gain: float | None, doubtful: bool, row: Judgement
) -> None:
    found = "\n".join(judging.totals([replace(row, measured=gain)]))
    assert ("hardly faster without their fault" in found) is doubtful


def test_of_a_range_of_gains_the_closest_counts_unless_others_were_busy(row: Judgement) -> None:
    found = replace(row, predicted=2.0, predicted_at_most=3.0, measured=2.5)
    assert found.gain_error == 0.0
    assert replace(found, measured=4.0).gain_error == pytest.approx(-0.25)
    assert replace(found, others_cores=1.0).gain_error is None
    assert replace(found, right=False).gain_error is None


def test_attach_is_held_against_run(row: Judgement) -> None:
    other = replace(row, verdict=row.verdict._replace(severity="info"))
    rows = [replace(row, attached=each) for each in (row, other)]
    assert [line(COLUMNS, each).endswith(" !") for each in rows] == [False, True]
    assert judging.totals(rows)[-1] == "attach as run   verdict 2 of 2, severity 1 of 2, place 2 of 2"
