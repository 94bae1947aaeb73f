"""Trainings that ran on an H100: bounds of its idle time, and what is said from moment to moment."""

from collections.abc import Iterable
from statistics import median

import pytest
from msgspec import structs

from tests.altered import altered
from tests.recorded_logs import LOGS, log_path
from tuimon.diagnosis.evidence.evidence import evidence_of
from tuimon.diagnosis.verdicts import Verdicts, fold
from tuimon.records import Gpu, Record
from tuimon.session.session import Session
from tuimon.sources.log.source import read_records

#: The programs of the recorded logs.
H100 = [path.name.partition(".")[0].removeprefix("h100_") for path in LOGS if path.name.startswith("h100_")]


def records(name: str) -> list[Record]:
    return list(read_records(str(log_path(f"h100_{name}"))))


def idle(found: Iterable[Record]) -> tuple[float, float] | None:
    session, _ = fold(found)
    steps = evidence_of(session.over("whole").focus).gpu.steps
    return steps.idle if steps is not None else None


def test_bounds_of_the_idle_time_are_narrow_where_nvml_is_there() -> None:
    """Of runs of some ten seconds, beside which the errors of sampling shrink."""
    bounds = [idle(records(name)) for name in H100]
    widths = sorted(most - least for least, most in filter(None, bounds) if (least, most) != (0.0, 1.0))
    assert len(widths) >= 12
    assert median(widths) <= 0.13


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("no_copies", 0.7),
        ("uncounted_copies", 0.0),
        ("copies_counted_one_way", 0.0),
        ("copies_over_c2c", 0.0),
        ("few_copies", 0.15),
        ("slow_copies", 0.0),
    ],
)
def test_a_gpu_that_copies_for_most_of_the_time_does_not_idle(name: str, least: float) -> None:
    assert idle(altered(name))[0] == pytest.approx(least, abs=0.05)


@pytest.mark.parametrize("seconds", [range(-60, 0), range(1, 16)], ids=["before", "after"])
def test_a_gpu_that_idles_before_the_first_step_or_after_the_last_changes_nothing(seconds: range) -> None:
    found = records("masked_loss")
    gpus = [record for record in found if isinstance(record, Gpu)]
    near = gpus[0] if seconds[0] < 0 else gpus[-1]
    idles = [
        structs.replace(near, t=near.t + later, util_ratio=0.0, util_samples=[0.0] * 5, sm_ratio=0.0)
        for later in seconds
    ]
    longer = [found[0], *idles, *found[1:]] if seconds[0] < 0 else [*found, *idles]
    assert idle(longer) == pytest.approx(idle(found), abs=0.002)


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("guard_in_every_layer", {"sync_point", "compute_bound", "low_precision_unused"}),
        ("pageable_images", {"transfer_bound"}),
        ("masked_loss", {"sync_point"}),
        ("cell_by_cell", {"launch_bound"}),
    ],
)
def test_nothing_else_is_first_at_any_moment(name: str, rules: set[str]) -> None:
    """In the first seconds neither NVML nor samples show why the GPU idles: then nothing is said of it."""
    verdicts, first, judged_s = Verdicts(session := Session()), set(), None
    for record in records(name):
        session.add(record)
        if judged_s is None or session.now_s - judged_s >= 1.0:
            found = verdicts.judge()
            judged_s = session.now_s
            first |= {finding.rule for finding in found[:1]}
    assert first <= rules
    assert first
