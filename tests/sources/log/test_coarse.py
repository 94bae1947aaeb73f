"""Windows of a steady run grow; a change is recorded as fine as before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.session import records
from tests.sources.log.steady_run import AFTER_S, PID, coarsened, run_of, second_of, totals_of
from tuimon.diagnosis.reading import fold
from tuimon.diagnosis.verdicts import Verdicts
from tuimon.records import Exit, Gpu, Mark, Notice, Record, Steps, TorchMemory
from tuimon.sources.log.coarse import steadiness
from tuimon.sources.log.coarse.held import Coarse
from tuimon.sources.log.coarse.steadiness import Steadiness
from tuimon.sources.log.reader import read_log
from tuimon.sources.log.writer import LogWriter
from tuimon.views.report.summary import report_of


def test_the_report_of_a_merged_log_is_that_of_the_fine_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [*run_of(400), Exit(t=401.0, pid=PID, exit_code=0)]
    reports = []
    for name, after_s in (("fine", 10**6), ("coarse", AFTER_S)):
        monkeypatch.setattr(steadiness, "STEADY_AFTER_S", after_s)
        log = LogWriter(str(tmp_path / name))
        for record in made:
            log.add_record(record)
            assert log.flush(record.t) is None
        log.close()
        verdicts = Verdicts()
        session, findings = fold(read_log(log.path), verdicts)
        reports.append(report_of(session, findings, "log", verdicts.changes))
    fine, coarse = reports
    assert (tmp_path / "coarse").stat().st_size < 0.4 * (tmp_path / "fine").stat().st_size
    assert coarse["steps"] == fine["steps"]
    assert fine["findings"]
    assert [(f["rule"], f["cause"], f["severity"]) for f in coarse["findings"]] == [
        (f["rule"], f["cause"], f["severity"]) for f in fine["findings"]
    ]
    for one, other in zip(coarse["phases"], fine["phases"], strict=True):
        assert one["share"] == pytest.approx(other["share"], abs=0.002)
    assert coarse["changes"] == fine["changes"]
    assert coarse["sampling"]["samples"] == fine["sampling"]["samples"]
    assert coarse["run"]["duration_s"] == fine["run"]["duration_s"]


def lengths_after(written: list[Record], t: float) -> list[float]:
    return [record.window_s for record in written if isinstance(record, Steps) and record.t > t]


def test_windows_grow_once_the_run_is_steady() -> None:
    written = coarsened(run_of(200))
    assert set(lengths_after([r for r in written if r.t < AFTER_S], 0.0)) == {1.0}
    assert set(lengths_after(written, AFTER_S + 10)[:-1]) == {10.0}
    assert [r.t for r in written] == sorted(r.t for r in written)


CHANGES: dict[str, list[Record]] = {
    "notice": [Notice(t=155.0, pid=0, source="gpu", level="warning", message="lost")],
    "process": [records.process(pid=300, role="other", t=155.0)],
    "driver error": [Gpu(t=155.0, pid=0, index=0, uuid="GPU-1", name="Fake", xids=[79])],
    "throttled": [Gpu(t=155.0, pid=0, index=0, uuid="GPU-1", name="Fake", throttle=["thermal"])],
    "retries": [
        TorchMemory(t=154.0, pid=PID, device=0, alloc_retries=0),
        TorchMemory(t=155.0, pid=PID, device=0, alloc_retries=1),
    ],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_recorded_as_it_came(change: list[Record]) -> None:
    made = run_of(300)
    at = next(number for number, record in enumerate(made) if record.t > 155.0)
    written = coarsened(made[:at] + change + made[at:])
    assert set(lengths_after(written, 155.0)[:50]) == {1.0}  # also what was held at that moment
    assert lengths_after(written, 270.0)[0] == 10.0
    assert [r for r in written if r in change] == change


def shifted(change: dict[str, float]) -> list[Record]:
    made = run_of(150)
    index = next(r.first_index + r.count for r in reversed(made) if isinstance(r, Steps))
    rng = random.Random(2)
    for t in range(151, 400):
        made += second_of(float(t), rng, index, **change)
        steps = made[-5]
        assert isinstance(steps, Steps)
        index += steps.count
    return made


@pytest.mark.parametrize("change", [{"ms": 140.0}, {"ms": 60.0}, {"data": 0.4}], ids=str)
def test_a_shift_of_the_steps_is_a_change_and_then_the_new_normal(change: dict[str, float]) -> None:
    written = coarsened(shifted(change))
    assert set(lengths_after([r for r in written if r.t < 140], 80.0)) == {10.0}
    assert set(lengths_after(written, 165.0)[:40]) == {1.0}
    assert set(lengths_after(written, 280.0)[:-1]) == {10.0}
    assert totals_of(written).count == totals_of(shifted(change)).count


def test_a_standstill_is_a_change() -> None:
    made = run_of(150)
    index = next(r.first_index + r.count for r in reversed(made) if isinstance(r, Steps))
    made += [
        Steps(t=float(t), pid=PID, window_s=1.0, count=0, first_index=index, total_ns=0, phases=[])
        for t in range(151, 190)
    ]
    assert set(lengths_after(coarsened(made), 165.0)) == {1.0}


def test_noise_and_workers_of_another_epoch_are_none() -> None:
    made = run_of(300)
    for epoch in range(60, 300, 20):
        worker = records.process(pid=1000 + epoch, role="worker", ppid=PID, t=float(epoch))
        at = next(number for number, record in enumerate(made) if record.t > epoch)
        made[at:at] = [worker, Mark(t=float(epoch), pid=PID, name=f"epoch {epoch}")]
    written = coarsened(made)
    assert set(lengths_after(written, 150.0)[:-1]) == {10.0}
    assert sum(isinstance(record, Mark) for record in written) == 12


def test_a_killed_monitor_loses_at_most_a_coarse_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steadiness, "STEADY_AFTER_S", AFTER_S)
    log = LogWriter(str(tmp_path / "run.jsonl"))
    for record in run_of(300):
        log.add_record(record)
        log.flush(record.t)
        if record.t >= 2.0:
            last = max(each.t for each in read_log(log.path))
            assert record.t - last <= 10.0 or record.t % 50  # reading is slow: at some moments
    assert log.flush(320.0) is None  # nothing has come for a while
    assert max(record.t for record in read_log(log.path)) == 300.0


def test_a_verdict_that_changes_makes_windows_fine() -> None:
    coarse = Coarse(Steadiness(AFTER_S))
    written: list[Record] = []
    for record in run_of(200):
        if record.t == 155.0 and isinstance(record, Steps):
            coarse.note_change(155.0)
        written += coarse.add_record(record)
    assert set(lengths_after(written, 155.0)) == {1.0}
