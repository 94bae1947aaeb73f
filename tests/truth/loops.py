"""Random training scripts under tuimon, judged by their own stopwatch."""

import argparse
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.random_loops.plan import INPUT_PLACES, Plan, draw, healthy
from tests.random_loops.script import script_of, slow_library
from tests.random_loops.works import CAUSE
from tests.truth import judging, programs
from tests.truth.judging import LOUD, MIN_GAIN, Judgement, judge, of_cheaper_line
from tests.truth.kind import Kind
from tests.truth.programs import SCRIPTS
from tests.truth.running import Truth, gained_by, watched
from tuimon.diagnosis.finding import Finding

#: A part of the step that is worth ``MIN_GAIN`` may be named, one worth this has to be.
TOLD_GAIN = 1.12
#: Parts whose gains lie so close together are as good as equal.
NEARLY = 1.15
#: A piece of work that takes at least this share of its part of the step is its place.
MOST = 0.5
#: Parts whose cost scripts are given; that of the update is what their model makes it.
PLANTED = ("data", "side", "model")
#: Rules that name a part of the step here.
PART_OF_RULE = {"input_bound": "data", "side_work": "side", "optimizer_bound": "optimizer", "gc_pauses": "side"}
#: The cause of compute_bound_cpu that does.
IN_MODEL = "python"
#: The places at which the pieces of a part stand.
PLACES_OF = {"side": ("step_end",), "data": (*INPUT_PLACES, "batch"), "model": ("model",)}


class Loops(Kind[Plan, Judgement]):
    """Random training scripts under tuimon: phases, verdicts and gains against their own truth."""

    columns = judging.COLUMNS
    seconds = 12.0

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-n", type=int, default=20, metavar="N", help="how many loops (default %(default)s)")
        parser.add_argument("--seed", type=int, metavar="S", help="the first one's seed (default: a new one)")
        parser.add_argument("--healthy", action="store_true", help="loops with nothing to complain of")
        programs.add_options(parser)

    def cases(self, args: argparse.Namespace) -> Sequence[Plan]:
        seed = random.SystemRandom().randrange(1_000_000) * 1000 if args.seed is None else args.seed
        drawn = [draw(n) for n in range(seed, seed + args.n)]
        return [healthy(plan) for plan in drawn] if args.healthy else drawn

    def judged(self, case: Plan, args: argparse.Namespace) -> Iterator[Judgement]:
        script, seconds = write(case, args.folder), args.seconds

        def command(seconds: float) -> list[str]:
            return [sys.executable, str(script), f"--seconds={seconds:g}"]

        outcome = watched(case.name, command(seconds), args.folder)
        gained: dict[str, float] = {}
        if args.gain and accepted_parts(gains_of(outcome.truth)):
            pieces = [piece.name for piece in case.pieces if piece.name != "tiny"]
            without = {piece: [*command(seconds / 3), f"--without={piece}"] for piece in pieces}
            gained = gained_by(case.name, command(seconds / 3), without, args.folder)
        label = LoopLabel(case, script, outcome.truth, gained)
        yield programs.with_attached(label, judge(label, outcome), command, args)

    def totals(self, rows: Sequence[Judgement]) -> list[str]:
        return judging.totals(rows)


def write(plan: Plan, folder: Path) -> Path:
    """The script and what it imports, in a folder of its own."""
    own = folder / plan.name
    own.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPTS / "laps.py", own)
    name, text = slow_library(plan.setup_s)
    (own / name).write_text(text)
    script = own / f"{plan.name}.py"
    script.write_text(script_of(plan))
    return script


@dataclass(frozen=True)
class LoopLabel:
    """A loop's truth, by its stopwatch; ``gained``: how much faster it is without a piece."""

    plan: Plan
    script: Path
    truth: Truth
    gained: dict[str, float]

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def expected(self) -> str:
        """The loop's shape, and what each part of the step is worth."""
        worth = (f"{name} {gain:.2f}x" for name, gain in gains_of(self.truth).items())
        return f"{self.plan.shape}: {', '.join(worth)}"

    @property
    def is_healthy(self) -> bool:
        """True if there is nothing to complain of."""
        return not accepted_parts(gains_of(self.truth))

    def is_right(self, finding: Finding | None) -> bool:
        """True if it names the part that is worth most, or nothing if no part is worth much."""
        if finding is None or finding.severity not in LOUD:
            gains = gains_of(self.truth)
            return max(gains[part] for part in PLANTED) < TOLD_GAIN or not accepted_parts(self._possible())
        return may_be_first(_part(finding), self._possible())

    def is_false(self, finding: Finding) -> bool:
        """True if it warns of something that is worth nothing."""
        return finding.severity in LOUD and self._possible().get(_part(finding) or "", 1.0) < MIN_GAIN

    def lines(self, finding: Finding | None) -> frozenset[tuple[str, int]]:
        """Those of the pieces of work that its part of the step consists of."""
        marks = tuple(f"{CAUSE}{piece}" for piece in self._pieces(finding))
        if finding is None or finding.severity not in LOUD or not marks:
            return frozenset()
        numbered = enumerate(self.script.read_text().splitlines(), 1)
        return frozenset((self.script.name, n) for n, line in numbered if line.endswith(marks))

    def gains(self, finding: Finding | None) -> tuple[float | None, float | None]:
        """Those of the work that it names, as if that cost nothing: more workers are not what is measured."""
        measured = max((self.gained[each] for each in self._pieces(finding) if each in self.gained), default=None)
        return (None if finding is None or self.is_healthy else of_cheaper_line(finding)), measured

    def _possible(self) -> dict[str, float]:
        """The most that each part may be worth: by its share of the step, or by what the largest piece of it gained."""
        gains = gains_of(self.truth)
        measured = measured_gains(self.plan, self.gained)
        return {part: max(gain, measured.get(part, 1.0)) for part, gain in gains.items()}

    def _pieces(self, finding: Finding | None) -> list[str]:
        """The largest pieces of work of the part that it names, without what takes little of it."""
        part, truth = _part(finding), self.truth
        shares = truth.pieces | truth.in_model | truth.in_evaluation
        places = PLACES_OF.get(part or "", ())
        names = [piece.name for piece in self.plan.pieces if piece.place in places and piece.name != "tiny"]
        most = max((shares.get(name, 0.0) for name in names), default=0.0)
        saved_ms = {name: truth.wall_ms * (1 - 1 / gain) for name, gain in self.gained.items()}
        part_ms = truth.wall_ms * (1 - 1 / gains_of(truth).get(part or "", 1.0))
        largest = [name for name in names if shares.get(name, 0.0) * NEARLY >= most]
        return [name for name in largest if is_most(part_ms, saved_ms.get(name))]


def gains_of(truth: Truth) -> dict[str, float]:
    """The gain of a step that does not wait for data, of one without side work and evaluation, and so on."""
    shares = truth.shares
    whole = 1 + shares.get("eval", 0.0)
    parts = {
        "data": shares.get("data", 0.0),
        "side": sum(truth.pieces.values()) + shares.get("eval", 0.0),
        "model": sum(truth.in_model.values()),
        "optimizer": shares.get("optimizer", 0.0),
    }
    return {name: whole / max(whole - share, 1e-3) for name, share in parts.items()}


def measured_gains(plan: Plan, gained: dict[str, float]) -> dict[str, float]:
    """The most that one piece of a part gained, by part: where threads share cores, more than its share."""
    return {
        part: max(gained[piece.name] for piece in pieces)
        for part, places in PLACES_OF.items()
        if (pieces := [piece for piece in plan.pieces if piece.place in places and piece.name in gained])
    }


def accepted_parts(gains: dict[str, float]) -> frozenset[str]:
    """The parts that were planted and may be named first."""
    most = max(gains[name] for name in PLANTED)
    if most < MIN_GAIN:
        return frozenset()
    return frozenset(name for name in PLANTED if gains[name] >= MIN_GAIN and gains[name] * NEARLY >= most)


def may_be_first(part: str | None, gains: dict[str, float]) -> bool:
    """True if no other part is worth more; an update that takes long may be named, as some can be made cheaper."""
    if part is None or gains.get(part, 1.0) < MIN_GAIN:
        return False
    rivals = gains if part not in PLANTED else PLANTED
    return gains[part] * NEARLY >= max(gains[name] for name in rivals)


def is_most(part_ms: float, saved_ms: float | None) -> bool:
    """True if a piece of work takes most of its part of the step, as far as the step without it was timed.

    What else a wait for data consists of (starting workers, handing batches over) has no line of the script.
    """
    return saved_ms is None or saved_ms >= MOST * part_ms


def _part(finding: Finding | None) -> str | None:
    if finding is None:
        return None
    return "model" if finding.cause == IN_MODEL else PART_OF_RULE.get(finding.rule)
