"""Two sides compared: what is said, what is refused, and what widens the answer."""

import re

import pytest
from msgspec.structs import replace

from tests.views.comparison.series import FACTS, correlated, stretches, wandering
from tuimon.diagnosis.cells import Cell
from tuimon.diagnosis.finding import Change, Finding, Fix
from tuimon.errors import NotComparable
from tuimon.interval import Interval
from tuimon.records import Place
from tuimon.session.steps import StepStretch
from tuimon.views.comparison.compare import compare, speedup_text
from tuimon.views.comparison.result import Comparison, Range, Row
from tuimon.views.comparison.runs import NOWHERE, Run

STARVED = Finding(
    rule="input_bound",
    severity="critical",
    headline="60 % of every step waits for data",
    fixes=(Fix("num_workers=0 -> 4", 2.2, Interval(1.8, 2.4), Change("workers", 4)),),
    cause="no_workers",
    share_of_step=0.6,
)
BUSY = Finding(rule="compute_bound", severity="benign", headline="the GPU computes", share_of_step=0.9)


#: The whole percent in the last note.
NOISE = re.compile(
    r"^With one run per side, (\d)\.\d % run-to-run noise is assumed; record several runs to measure it$"
)


def run(seed: int, middle: float = 50.0, number: int = 60, **more: object) -> Run:
    step_ms = more.pop("series", correlated(number, 0.3, seed, middle))
    facts = {"name": f"run {seed}", "facts": FACTS, "stretches": stretches(step_ms)}
    return Run(**facts | more)  # type: ignore[arg-type]


def row(found: Comparison, name: str) -> Row:
    return next(each for each in found.rows if each.name == name)


def test_a_faster_run_is_told_with_its_interval() -> None:
    found = compare([run(1)], [run(2, middle=25.0)])
    assert found.outcome == "faster"
    assert found.speedup.low < 2.0 < found.speedup.high
    assert found.speedup.high / found.speedup.low < 1.1
    assert found.headline.startswith("2.0")
    assert row(found, "step time").significant
    assert row(found, "step time").after == pytest.approx(25.0, rel=0.02)
    assert row(found, "throughput").after == pytest.approx(40.0, rel=0.03)


def test_a_planted_slowdown_of_3_percent_is_slower() -> None:
    assert [compare([run(seed)], [run(seed + 100, middle=51.5)]).outcome for seed in range(5)] == ["slower"] * 5


def on_cores(seed: int, middle: float, busy: float = 1.0, **more: object) -> Run:
    """A run of which the CPU's cores compute that share."""
    figures = run(seed, middle, **more)
    rows = tuple(each._replace(cpu_ns=busy * each.total_ns) for each in figures.stretches)
    return replace(figures, stretches=rows)


@pytest.mark.parametrize(
    ("more", "after_ms", "outcome", "noise"),
    [
        ({}, 51.5, "unclear", "4"),
        ({}, 60.0, "slower", "4"),
        ({"busy": 0.05}, 51.5, "slower", "0"),
        # a GPU hides it
        ({"gpu_ratio": 0.98}, 51.5, "slower", "0"),
        ({"gpu_ratio": 0.1}, 51.5, "unclear", "3"),
        # a wait for workers is work on cores
        ({"busy": 0.1, "facts": replace(FACTS, workers=2)}, 51.5, "unclear", "2"),
    ],
)
def test_what_cores_compute_differs_from_process_to_process(
    more: dict[str, object], after_ms: float, outcome: str, noise: str
) -> None:
    found = compare([on_cores(1, 50.0, **more)], [on_cores(101, after_ms, **more)])
    assert (found.outcome, NOISE.search(found.notes[-1])[1]) == (outcome, noise)


def test_the_same_program_twice_is_no_different() -> None:
    found = [compare([run(seed)], [run(seed + 100)]) for seed in range(20)]
    outcomes = [each.outcome for each in found]
    assert outcomes.count("same") >= 15  # of the others, a part of the variance looks as if it lasted
    assert not {"faster", "slower"} & set(outcomes)
    assert sum(any(row.significant for row in each.rows) for each in found) <= 1


def test_runs_whose_pace_wanders_are_not_different() -> None:
    """On a machine whose speed wanders by 6 %, runs of one program lie as far apart as stretches of a run do."""
    series = [[wandering(60, seed + 100 * side) for side in (0, 1)] for seed in range(60)]
    found = [compare([run(0, series=pair[0])], [run(1, series=pair[1])]).outcome for pair in series]
    assert not {"faster", "slower"} & set(found)  # 10 without what lasts


def test_stretches_of_one_long_run_are_seldom_different() -> None:
    """Not even a minute apart on a machine whose speed wanders over minutes."""
    series = [wandering(120, seed) for seed in range(100, 160)]
    found = [compare([run(0, series=each[:40])], [run(1, series=each[80:])]).outcome for each in series]
    assert sum(outcome in ("faster", "slower") for outcome in found) <= 3


def test_rows_are_what_the_steps_consist_of() -> None:
    found = compare([run(1)], [run(2)])
    assert row(found, "data").before == pytest.approx(30.0, rel=0.02)
    assert row(found, "backward").before == pytest.approx(10.0, rel=0.02)
    assert "eval" not in {each.name for each in found.rows}
    assert "GPU utilisation" not in {each.name for each in found.rows}


def test_utilisation_is_that_of_the_steps() -> None:
    found = row(compare([run(1, gpu_ratio=0.2)], [run(2, gpu_ratio=0.7)]), "GPU utilisation")
    assert (found.before, found.after, found.unit) == (pytest.approx(20), pytest.approx(70), "%")


# -- several runs


def test_several_runs_are_the_unit() -> None:
    """Runs that differ among themselves by 5 % hide what a single pair would call a difference of 3 %."""
    levels = [47.5, 50.0, 52.5, 50.0]
    before = [run(seed, middle) for seed, middle in enumerate(levels)]
    after = [run(10 + seed, 1.03 * middle) for seed, middle in enumerate(levels)]
    assert compare(before, after).outcome == "unclear"
    assert compare(before[:1], after[:1]).outcome == "slower"


# -- what disturbs


def test_neighbours_beside_both_cancel() -> None:
    found = compare([run(1, starved=0.2)], [run(2, middle=60.0, starved=0.2)])
    assert found.outcome == "slower"
    assert sum("Other programs" in note for note in found.notes) == 2


@pytest.mark.parametrize("slower", [15, 30, 45])
def test_a_level_that_shifts_on_the_way_is_noise_and_widens(slower: int) -> None:
    late = stretches([*correlated(60 - slower, 0.3, 2), *correlated(slower, 0.3, 3, middle=60.0)])
    found = compare([run(1)], [run(2, stretches=late)])
    assert found.outcome == "unclear"
    assert float(re.search(r"([\d.]+) % run-to-run noise", found.notes[-1])[1]) > 5


def test_warm_up_is_left_out() -> None:
    cold = stretches([150.0, 90.0, 70.0, *correlated(60, 0.3, 2)])
    found = compare([run(1)], [run(2, stretches=cold)])
    assert found.speedup.low < 1.0 < found.speedup.high < 1.05
    assert found.after.warmup_s == 3.0


def test_steps_that_grow_all_the_time_are_told_and_none_the_faster_for_a_shorter_run() -> None:
    """Steps grow by a half over 2,000 of them; the later run is half as long, and no faster."""

    def growing(seed: int, number: int, faster: float = 1.0) -> tuple[StepStretch, ...]:
        found, steps = [], 0.0
        for value in correlated(number, 0.3, seed):
            found.append(value * (1 + steps / 4000) / faster)
            steps += round(1000 / found[-1])
        return stretches(found)

    several = [run(seed, stretches=growing(seed, 120)) for seed in range(3)]
    quicker = [run(seed, stretches=growing(seed, 120, 1.1)) for seed in range(50, 53)]
    assert compare(several, quicker).outcome == "faster"
    for seed in range(5):
        found = compare([run(1, stretches=growing(seed, 120))], [run(2, stretches=growing(seed + 50, 60))])
        assert found.outcome == "unclear"
        assert any("longer or shorter throughout" in note for note in found.notes)


# -- refusals


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cpu_count": 4}, "cores 8 before, 4 after"),
        ({"gpus": ["H100"]}, "GPUs 2 × A100 before, H100 after"),
        ({"ranks": 4, "batch_size": None}, "ranks 1 before, 4 after"),
    ],
)
def test_what_means_nothing_is_refused_with_the_reason(change: dict[str, object], says: str) -> None:
    facts = replace(FACTS, gpus=["A100", "A100"])
    other = replace(facts, **change)
    with pytest.raises(NotComparable) as refused:
        compare([run(1, facts=facts)], [run(2, facts=other)])
    assert says in refused.value.message
    assert refused.value.exit_code == 3
    assert compare([run(1, facts=facts)], [run(2, facts=other)], anyway=True).unlike


def test_steps_of_another_size_are_compared_by_the_sample() -> None:
    """Twice the batch in 1.5 times the time."""
    twice = replace(FACTS, batch_size=64)
    found = compare([run(1)], [run(2, middle=75.0, facts=twice)])
    assert found.per_sample
    assert found.speedup.low < 4 / 3 < found.speedup.high
    assert "per sample" in found.headline


def test_another_torch_is_said() -> None:
    found = compare([run(1)], [run(2, facts=replace(FACTS, torch="2.14.0"))])
    assert [(each.name, each.before, each.after, each.effect) for each in found.unlike] == [
        ("torch", "2.13.0", "2.14.0", "said")
    ]


def test_windows_whose_steps_have_no_time_are_part_of_the_others() -> None:
    rows = run(2).stretches
    none = [at for at in range(len(rows)) if at % 7 == 3]
    damaged = tuple(row._replace(total_ns=0.0, waited_ns=0.0) if at in none else row for at, row in enumerate(rows))
    found = compare([run(1)], [run(2, stretches=damaged)], anyway=True)
    assert found.after.steps == compare([run(1)], [run(2)]).after.steps


SLOWED = tuple(row._replace(steps=0.0, total_ns=0.0) for row in run(2).stretches)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (run(1), run(2, number=5), r"AFTER .*too short: only 5 windows with steps after its warm-up, in 5 s"),
        (run(1), run(2, stretches=SLOWED), r"AFTER .*too short: only 0 windows"),  # all by a trace
        (run(1, stretches=()), run(2), r"BEFORE .*has no measured step"),
    ],
)
def test_a_run_without_enough_steps_is_refused(before: Run, after: Run, says: str) -> None:
    with pytest.raises(NotComparable, match=says):
        compare([before], [after])


# -- findings, promises, lines


def test_findings_that_are_gone_new_and_stay() -> None:
    late = replace(STARVED, cause="slow_item", share_of_step=0.2)
    found = compare([run(1, findings=(STARVED, BUSY))], [run(2, findings=(late, BUSY))])
    assert [(each.change, each.rule, each.cause) for each in found.findings] == [
        ("gone", "input_bound", "no_workers"),
        ("new", "input_bound", "slow_item"),
        ("stays", "compute_bound", None),
    ]


@pytest.mark.parametrize(("after_ms", "kept"), [(23.0, "kept"), (40.0, "less"), (10.0, "more")])
def test_a_promise_is_held_against_what_was_measured(after_ms: float, kept: str) -> None:
    facts = replace(FACTS, workers=4)
    found = compare([run(1, findings=(STARVED,))], [run(2, middle=after_ms, facts=facts, findings=(BUSY,))])
    assert found.promise is not None
    assert found.promise.kept == kept
    assert found.promise.estimated.value == 2.2
    assert "now compute-bound in data" in found.headline


def test_a_gain_is_measured_with_as_much_evaluation() -> None:
    """Half of the time in evaluation: steps that take half as long gain a third, whatever the second run evaluates."""
    facts = replace(FACTS, workers=4)
    before = [row._replace(eval_ns=row.total_ns) for row in run(1).stretches]
    found = compare(
        [run(1, stretches=tuple(before), findings=(STARVED,))], [run(2, middle=25.0, facts=facts, findings=(BUSY,))]
    )
    assert found.speedup.value == pytest.approx(2.0, rel=0.05)
    assert found.promise is not None
    assert found.promise.measured.value == pytest.approx(2 / 1.5, rel=0.03)
    evaluates = replace(
        STARVED, rule="side_work", cause="evaluation", fixes=(STARVED.best._replace(change=Change("evaluation", 0.0)),)
    )
    never = compare([run(1, stretches=tuple(before), findings=(evaluates,))], [run(2, findings=(BUSY,))])
    assert never.promise is not None
    assert never.promise.measured.value == pytest.approx(2.0, rel=0.05)


def test_less_evaluation_is_named_beside_the_steps_that_take_as_long() -> None:
    before, after = (
        [row._replace(eval_ns=row.total_ns * part) for row in run(number).stretches]
        for number, part in ((1, 1.0), (2, 0.25))
    )
    found = compare([run(1, stretches=tuple(before))], [run(2, stretches=tuple(after))])
    assert found.outcome in ("same", "unclear")
    assert found.headline.endswith("; evaluation 50 % -> 20 % of the time")
    assert "evaluation" not in compare([run(1, stretches=tuple(before))], [run(2, stretches=tuple(before))]).headline


def test_the_promise_is_of_the_fix_that_was_made() -> None:
    other = Fix("make augment() cheaper", 1.5, Interval(1.4, 1.6), Change("items", 0.5))
    both = replace(STARVED, fixes=(*STARVED.fixes, other))
    found = compare([run(1, findings=(both,))], [run(2, middle=33.0)])
    assert found.promise is not None
    assert found.promise.action == "make augment() cheaper"


@pytest.mark.parametrize(
    ("changed", "is_kept"),
    [
        ({}, True),  # the code alone
        ({"command": ["python", "train.py", "--steps", "9"]}, False),  # arguments may have ended the finding
        ({"command": ["python", "train.py", "--workers", "4"], "workers": 4}, True),  # which made the fix
        ({"cpu_count": 64, "workers": 4}, False),
    ],
)
def test_a_promise_is_kept_where_nothing_but_the_fix_can_have_ended_the_finding(
    changed: dict[str, object], is_kept: bool
) -> None:
    after = run(2, middle=25.0, facts=replace(FACTS, **changed))
    found = compare([run(1, findings=(STARVED,))], [after], anyway=True)
    assert (found.promise is not None) == is_kept


def test_a_function_that_moved_is_the_same() -> None:
    def cells(shift: int, augment: float) -> list[tuple[Cell, Place]]:
        augmented = Place("/a/train.py", 31 + shift, "augment", "out = cv(img)")
        back = Place("/a/train.py", 52 + shift, "main", "loss.backward()")
        return [
            (Cell("data", "item", augment, via=("batch",)), augmented),
            (Cell("backward", "own" if shift else "torch", 0.2), back),
            (Cell("forward", "others", 0.8 - augment, via=("core",)), NOWHERE),
        ]

    one, other = (
        run(seed, middle=middle, cells=cells(shift, part), samples=1000)
        for seed, middle, shift, part in ((1, 50.0, 0, 0.6), (2, 25.0, 7, 0.02))
    )
    first, *_, last = compare([one], [other]).lines
    assert (first.line, first.function, first.significant) == (38, "augment", True)
    assert (first.phase, first.doing, first.via) == ("data", "item", ["batch"])
    assert first.difference_ms == pytest.approx(0.02 * 25 - 0.6 * 50, rel=0.05)
    assert (last.file, last.before_ms, last.after_ms) == ("/a/train.py", pytest.approx(10, 0.1), pytest.approx(5, 0.1))


@pytest.mark.parametrize(
    ("speedup", "text"),
    [
        (Range(0.9, 0.7, 1.2), "cannot tell: between 1.43x slower and 1.20x faster; repeat the runs"),
        (
            Range(0.85, 0.05, 13.4),
            "cannot tell: runs this uneven differ by a factor of 2 or more by chance; repeat the runs",
        ),
    ],
)
def test_an_interval_that_tells_nothing_is_not_told(speedup: Range, text: str) -> None:
    assert speedup_text("unclear", speedup) == text
