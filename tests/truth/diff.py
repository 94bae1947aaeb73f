"""Trainings that do not differ, and trainings that differ by a known factor: what ``tuimon diff`` says of them.

Pairs are stretches cut from a long run, and drawn steps of recorded GPU trainings.
"""

import argparse
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple

from msgspec.structs import replace

from tests.gpu_simulator.recording import load, names
from tests.session import records as literal
from tests.session.records import session_of
from tests.truth.kind import Column, Kind
from tests.truth.programs import labelled
from tests.truth.running import recorded
from tuimon.agent.ring import layout
from tuimon.errors import NotComparable
from tuimon.records import Frames, Header, PhaseTime, Process, Record, Stacks, Steps, Threads
from tuimon.sources.log.source import read_records
from tuimon.views.comparison.compare import compare
from tuimon.views.comparison.result import Comparison
from tuimon.views.comparison.runs import RUN_DEVIATION, Run, run_of

#: Labelled programs that do the same all the time: one computes, one makes batches, one waits for them.
STEADY = ("healthy_compiled", "photos_without_workers", "remote_images")
OUTCOMES = ("slower", "faster", "same", "unclear", "refused")
#: At most this share of pairs without a difference may be called different; at least the rest of planted ones is found.
_ERROR = 0.05
#: Deviation of steps from which a minute of them is too short to show 3 % for certain.
_EVEN = 0.10
#: The planted factor, and the length of the pairs that must show it.
_SLOWER, _MINUTE_S = 1.03, 60.0
#: A recording with fewer whole steps says nothing of how they vary.
_MIN_STEPS = 3


class Judged(NamedTuple):
    """A pair: which, and what was said; None if it was refused."""

    name: str
    found: Comparison | None

    @property
    def outcome(self) -> str:
        return self.found.outcome if self.found is not None else "refused"

    @property
    def width(self) -> float:
        return self.found.speedup.high / self.found.speedup.low - 1 if self.found is not None else 0.0


class Group(NamedTuple):
    """Pairs of one sort: a case, and with its pairs a row."""

    name: str
    draw: Callable[[], Iterable[Judged]]
    planted: float = 1.0  # 1: they do not differ
    must_find: bool = False
    pairs: tuple[Judged, ...] = ()

    @property
    def false(self) -> int:
        """How many were called different without a difference."""
        return sum(each.outcome in ("slower", "faster") for each in self.pairs) if self.planted == 1 else 0


class Diff(Kind[Group, Group]):
    """Runs that do not differ, and runs 3 % slower: what does a comparison say of them? (30 minutes)"""

    columns = (
        Column("", 34, lambda row: row.name),
        Column("pairs", -6, lambda row: len(row.pairs)),
        *(
            Column(word, -7, lambda row, word=word: sum(each.outcome == word for each in row.pairs))
            for word in OUTCOMES
        ),
        Column("interval", -9, lambda row: f"{100 * sorted(_widths(row))[len(_widths(row)) // 2]:.1f} %"),
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        for option, number, what in (
            ("--cut", 180, "cut from long runs"),
            ("--planted", 40, "of a minute, one 3 %% slower"),
            ("--drawn", 40, "of drawn GPU steps, of each recording"),
        ):
            parser.add_argument(
                option, type=int, default=number, metavar="N", help=f"pairs {what} (default %(default)s)"
            )
        parser.add_argument("--long", type=float, default=180, help="seconds of each long run (default %(default)s)")
        parser.add_argument("-v", "--verbose", action="store_true", help="what was said of each pair")

    def cases(self, args: argparse.Namespace) -> Sequence[Group]:
        minute, groups = (_MINUTE_S, _MINUTE_S), []
        if args.cut:
            groups.append(Group("cut", lambda: cut_pairs(long_runs(args), args.cut, (20, _MINUTE_S))))
        if args.planted:
            pairs = partial(cut_pairs, number=args.planted, lengths=minute, slower=_SLOWER, seed=1)
            groups.append(Group("cut, 3 % slower", lambda: pairs(long_runs(args)), _SLOWER, must_find=True))
        for name, ms in recorded_steps().items():
            is_even = deviation(ms) < _EVEN
            groups += [
                Group(f"drawn {name}", lambda ms=ms: drawn_pairs(ms, args.drawn, _MINUTE_S)),
                Group(
                    f"drawn {name}, 3 % slower",
                    lambda ms=ms: drawn_pairs(ms, args.drawn, _MINUTE_S, _SLOWER),
                    _SLOWER,
                    is_even,
                ),
            ]
        return groups

    def judged(self, case: Group, args: argparse.Namespace) -> Iterator[Group]:
        pairs = []
        for each in case.draw():
            pairs.append(each)
            if args.verbose:
                print(f"  {each.name}: {each.found.headline if each.found else 'refused'}", flush=True)
        if pairs:
            yield case._replace(pairs=tuple(pairs))

    def totals(self, rows: Sequence[Group]) -> list[str]:
        false, same, found, planted = _counted(rows)
        return [f"called different without a difference: {false} of {same}", f"3 % found: {found} of {planted}"]

    def passed(self, rows: Sequence[Group]) -> bool:
        """At most ``_ERROR`` of what was cut from long runs is judged wrong."""
        false, same, found, planted = _counted([row for row in rows if row.name.startswith("cut")])
        return false <= _ERROR * same and found >= (1 - _ERROR) * planted


def _counted(rows: Sequence[Group]) -> tuple[int, int, int, int]:
    """How many pairs without a difference were called different, of how many; how many planted ones were found."""
    same = [row for row in rows if row.planted == 1]
    planted = [each for row in rows if row.must_find for each in row.pairs]
    found = sum(each.outcome == "slower" for each in planted)
    return sum(row.false for row in same), sum(len(row.pairs) for row in same), found, len(planted)


def _widths(row: Group) -> list[float]:
    return [each.width for each in row.pairs if each.found is not None] or [math.nan]


# -- stretches of one run


def long_runs(args: argparse.Namespace) -> list[list[Record]]:
    """The records of a long run of each steady program. Raises Failed."""
    programs, runs = labelled(), []
    for name in STEADY:
        log = args.folder / f"{name}.jsonl"
        recorded(log, programs[name].command(args.long), "--no-gpu", "--interval", "0.5")
        runs.append(list(read_records(str(log))))
    return runs


def figures(records: Iterable[Record], name: str) -> Run:
    """A run as it is compared, without its findings, which take most of the time and no part in the outcome."""
    return run_of(session_of(*records), (), name)


def judge(before: Run, after: Run) -> Judged:
    """Compare two runs."""
    name = f"{before.name} | {after.name}"
    try:
        return Judged(name, compare([before], [after]))
    except NotComparable:
        return Judged(name, None)


def cut_pairs(
    runs: Sequence[list[Record]], number: int, lengths: tuple[float, float], slower: float = 1.0, seed: int = 0
) -> Iterator[Judged]:
    """Two stretches of one run that do not overlap, the second slower; drawn at random, always the same."""
    chance = random.Random(seed)
    for index in range(number):
        records = runs[index % len(runs)]
        length = chance.uniform(*lengths)
        ends_s = [each.t for each in records if isinstance(each, Steps) and each.count]
        spare = (ends_s[-1] - ends_s[0] if ends_s else 0.0) - 2 * length
        if spare < 0:
            continue
        first = chance.uniform(0, spare)
        second = first + length + chance.uniform(0, spare - first)
        begins = [first, second] if chance.random() < 0.5 else [second, first]
        pair = [
            figures(cut(records, begin, length, factor), f"{length:.0f} s from {begin:.0f} s")
            for begin, factor in zip(begins, (1.0, slower), strict=True)
        ]
        yield judge(*pair)


def cut(records: Iterable[Record], begin_s: float, seconds: float, slower: float = 1.0) -> list[Record]:
    """The records of windows that lie between two moments after the first step, ``slower`` times as long each."""
    found: list[Record] = []
    first_s: float | None = None
    for each in records:
        if isinstance(each, Header | Process | Frames):
            found.append(each)
            continue
        if isinstance(each, Steps) and each.count and first_s is None:
            first_s = each.t
        if first_s is None or not isinstance(each, Steps | Threads | Stacks):
            continue
        if begin_s <= each.t - each.window_s - first_s and each.t - first_s <= begin_s + seconds:
            found.append(_slowed(each, first_s, slower))
    return found


def _slowed(window: Steps | Threads | Stacks, from_s: float, slower: float) -> Record:
    moved = {"t": from_s + slower * (window.t - from_s), "window_s": slower * window.window_s}
    if not isinstance(window, Steps):
        return replace(window, **moved)
    phases = [PhaseTime(phase.name, round(slower * phase.total_ns)) for phase in window.phases]
    return replace(window, **moved, total_ns=round(slower * window.total_ns), phases=phases)


# -- steps of recorded GPU trainings, drawn with replacement: one does not depend on those before it


def recorded_steps() -> dict[str, list[float]]:
    """The steps of each recording in ms, from the end of one update to that of the next, without its warm-up."""
    found = {}
    for name in names():
        recording = load(name)
        ends = [mark.time_ns for mark in recording.marks if mark.kind == layout.OPTIMIZER_END]
        steps = [(end - begin) / 1e6 for begin, end in pairwise(ends)][recording.skip_first_steps :]
        if len(steps) >= _MIN_STEPS:
            found[name] = steps
    return found


def deviation(steps_ms: Sequence[float]) -> float:
    """Their standard deviation as a ratio of the mean."""
    return stdev(steps_ms) / fmean(steps_ms)


def drawn_pairs(steps_ms: Sequence[float], number: int, seconds: float, slower: float = 1.0) -> Iterator[Judged]:
    """Pairs of runs, the second slower; always the same.

    Each run has a level of its own, as runs of one program differ by about half a percent.
    """
    chance = random.Random(f"{number} {seconds:g} {slower} {steps_ms[0]}")
    for _ in range(number):
        before, after = (figures(_drawn(steps_ms, seconds, factor, chance), "drawn") for factor in (1.0, slower))
        yield judge(before, after)


def _drawn(steps_ms: Sequence[float], seconds: float, slower: float, chance: random.Random) -> list[Record]:
    """Windows of a second with the steps that end in them."""
    level = slower * chance.gauss(1.0, RUN_DEVIATION)
    found: list[Record] = [literal.header(), literal.process(start_unix_s=chance.random())]
    now_s, first = 0.0, 0
    for t in range(1, round(seconds) + 1):
        ended = []
        while now_s < t:
            ended.append(level * chance.choice(steps_ms))
            now_s += ended[-1] / 1000
        phases = {"forward": fmean(ended)} if ended else {}
        found.append(literal.steps(float(t), phases, count=len(ended), first_index=first))
        first += len(ended)
    return found
