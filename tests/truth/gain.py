"""Random training scripts with the fixes that tuimon proposes, tried one by one: what do they gain?"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.random_loops.plan import INPUT_PLACES, Piece, Plan, draw
from tests.random_loops.works import CAUSE, SIDE_WORKS, WORKS
from tests.truth.judging import GAIN_ERROR, fold
from tests.truth.kind import Column, Kind, of, times
from tests.truth.loops import PLACES_OF, write
from tests.truth.running import gained_by, watched
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Place

#: This share of models and of pieces of work waits: their times are the same on a busy machine.
_WAITING = 0.7
#: This share of the loops without a piece of work that matters gets one.
_FILLED = 0.8
_LONGEST_STEPS_OF_SIDE_WORK = 5
_BATCHES_OF_EVALUATION = 20
#: The part of the step that a fix makes cheaper.
_PART_OF = {"items": "data", "fetch": "data", "side_work": "side", "model": "model"}


@dataclass(frozen=True)
class Tried:
    """One fix of one script."""

    name: str  # of the script
    finding: str
    severity: str
    change: str  # "" if the script cannot be changed that way
    fix: Fix
    measured: float | None

    @property
    def kind(self) -> str:
        """The fix, whatever it is applied to."""
        what, to = self.fix.change or ("other", 0.0)
        if what == "workers":
            return "no workers" if not to else "more workers"
        return f"{what} {'half' if to else 'free'}" if to < 1 else what

    @property
    def predicted(self) -> float:
        """As estimated; a fix without a gain is said to gain nothing."""
        return self.fix.estimated_speedup or 1.0

    @property
    def is_close(self) -> bool | None:
        """True if the estimate is within ``GAIN_ERROR`` of what was measured; None if nothing was."""
        return None if self.measured is None else abs(self.predicted / self.measured - 1.0) <= GAIN_ERROR

    @property
    def is_in_range(self) -> bool | None:
        """True if the range, widened by ``GAIN_ERROR``, holds what was measured."""
        low, high = self.fix.gain or (self.predicted, self.predicted)
        return None if self.measured is None else low * (1 - GAIN_ERROR) <= self.measured <= high * (1 + GAIN_ERROR)


class Gain(Kind[Plan, Tried]):
    """Fixes of random training scripts: the gain that tuimon predicts, and the one of the fixed script."""

    seconds = 10.0
    columns = (
        Column("script", 10, lambda row: row.name),
        Column("finding", 32, lambda row: row.finding),
        Column("severity", 9, lambda row: row.severity),
        Column("change", 16, lambda row: row.change),
        Column("predicted", 9, lambda row: times(row.predicted)),
        Column("range", 13, lambda row: "{:.2f}x-{:.2f}x".format(*row.fix.gain) if row.fix.gain else "-"),
        Column("measured", 9, lambda row: times(row.measured)),
        Column(
            f"{100 * GAIN_ERROR:.0f} %",
            6,
            lambda row: None if row.is_close is None else "yes" if row.is_close else "no",
        ),
        Column("fix", 60, lambda row: row.fix.action[:60]),
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-n", type=int, default=20, metavar="N", help="how many scripts (default %(default)s)")
        parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one's (default %(default)s)")
        parser.add_argument(
            "--each", type=float, default=4, metavar="SECONDS", help="of each fix (default %(default)s)"
        )

    def cases(self, args: argparse.Namespace) -> Sequence[Plan]:
        return [plan_of(seed) for seed in range(args.seed, args.seed + args.n)]

    def judged(self, case: Plan, args: argparse.Namespace) -> Iterator[Tried]:
        script = write(case, args.folder)
        command = [sys.executable, str(script), f"--seconds={args.seconds:g}"]
        outcome = watched(case.name, command, args.folder)
        found = [
            (finding, fix, change_of(finding, fix, case, script))
            for finding in fold(outcome.log).findings
            for fix in finding.fixes
            if finding.severity != "benign"
        ]
        gains = measured(case, [change for _, _, change in found if change is not None], args.each, args.folder)
        for finding, fix, change in found:
            if fix.estimated_speedup is not None or change is not None:
                name = finding.name
                yield Tried(case.name, name, finding.severity, change or "", fix, gains.get(change or ""))

    def totals(self, rows: Sequence[Tried]) -> Iterator[str]:
        """By kind of fix, and of all: estimates that are close, and ranges that hold the truth."""
        first: dict[str, Tried] = {}
        for row in rows:
            first.setdefault(row.name, row)
        kinds = {kind: [row for row in rows if row.kind == kind] for kind in sorted({row.kind for row in rows})}
        yield f"{'fix':<20}  {'close':>9}  {'in range':>9}  not tried"
        for name, some in {**kinds, "best of each script": list(first.values()), "all": rows}.items():
            close, held = of(row.is_close for row in some), of(row.is_in_range for row in some)
            yield f"{name:<20}  {close:>9}  {held:>9}  {sum(row.measured is None for row in some)}"


def plan_of(seed: int) -> Plan:
    """The random loop of this seed with a small model and no set-up, much of its work waiting, mostly some work in it.

    It needs little of a core, so that times can be compared.
    """
    plan, random = draw(seed), Random(f"gain {seed}")
    plan = replace(plan, model="waiting" if random.random() < _WAITING else "mlp", width=64, threads=1)
    pieces = [_calmed(piece, random) for piece in plan.pieces]
    if not any(piece.name != "tiny" for piece in pieces) and random.random() < _FILLED and plan.shape != "by_hand":
        pieces.append(Piece("piece_0", random.choice(INPUT_PLACES[:2]), "remote", random.choice((2, 4, 8))))
    return replace(
        plan,
        setup="nothing",
        setup_s=0.0,
        pieces=tuple(pieces),
        evaluate_every=_BATCHES_OF_EVALUATION if plan.evaluate_every else 0,
    )


def _calmed(piece: Piece, random: Random) -> Piece:
    every = min(piece.every, _LONGEST_STEPS_OF_SIDE_WORK)
    amount = max(1, piece.amount * every // piece.every)
    if piece.name == "tiny" or random.random() >= _WAITING or piece.place == "model":
        return replace(piece, every=every, amount=amount)
    works, waiting = (SIDE_WORKS, "upload") if piece.place == "step_end" else (WORKS, "remote")
    length_us = amount * works[piece.work].unit_us
    return replace(piece, work=waiting, amount=max(1, round(length_us / works[waiting].unit_us)), every=every)


def change_of(finding: Finding, fix: Fix, plan: Plan, script: Path) -> str | None:
    """The name of the change of the script that a fix is, as ``changed`` knows it; None if it is none."""
    match fix.change:
        case None:
            return None
        case ("items" | "fetch" | "side_work" | "model" as what, left):
            possible = [p.name for p in plan.pieces if p.place in PLACES_OF[_PART_OF[what]]]
            named = _piece_at(finding.where[:1], script) if finding.where else _only(possible)
            return f"{named}*{left:g}" if named in possible else None
        case (what, to):
            return f"{what}*{to:g}"


def _only(pieces: list[str]) -> str | None:
    """The one piece that matters."""
    large = [name for name in pieces if name != "tiny"]
    return large[0] if len(large) == 1 else None


def _piece_at(places: Sequence[Place], script: Path) -> str | None:
    """The piece of work whose function one of these lines is in."""
    lines = script.read_text().splitlines()
    for place in places:
        if place.file.endswith(script.name) and CAUSE in lines[place.line - 1]:
            return lines[place.line - 1].rpartition(CAUSE)[2]
    return None


def changed(plan: Plan, change: str) -> Plan | None:
    """The plan with a change; None if it has nothing to change."""
    what, _, to = change.rpartition("*")
    match what:
        case "workers":
            return replace(plan, workers=int(to))
        case "starts":
            return replace(plan, persistent=True)
        case "evaluation":
            return replace(plan, evaluate_every=round(plan.evaluate_every / float(to)) if float(to) else 0)
        case "threads":
            return replace(plan, threads=int(to))
        case _:
            return _with_piece(plan, what, float(to))


def _with_piece(plan: Plan, name: str, left: float) -> Plan | None:
    piece = next((piece for piece in plan.pieces if piece.name == name), None)
    if piece is None or (left and piece.amount * left < 1):
        return None
    less = replace(piece, amount=round(piece.amount * left))
    return replace(plan, pieces=tuple(less if each is piece else each for each in plan.pieces))


def measured(plan: Plan, changes: Sequence[str], seconds: float, folder: Path) -> dict[str, float]:
    """By change: how much faster the script is with it; one that it cannot have is left out."""
    scripts = {}
    for number, change in enumerate(dict.fromkeys(changes)):
        other = changed(plan, change)
        if other is not None:
            scripts[change] = write(other, folder / "changed" / str(number))
    as_it_is, *commands = (
        [sys.executable, str(script), f"--seconds={seconds:g}"] for script in (write(plan, folder), *scripts.values())
    )
    return gained_by(plan.name, as_it_is, dict(zip(scripts, commands, strict=True)), folder) if scripts else {}
