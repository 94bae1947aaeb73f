"""The table of phases: divides the steps of one process by markers, and by samples if markers leave time open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from tuimon.records import BETWEEN, DIVIDED, PHASES, STEP_PHASES
from tuimon.session.series import share_error, sum_of_all
from tuimon.session.steps import StepStretch, Totals
from tuimon.threshold import LARGER


class PhaseRow(NamedTuple):
    """One exclusive phase over the window. Over all rows but ``eval`` the shares add to 1."""

    name: str
    share: float  # of the steps' wall time; for "eval": of the loop's time, outside the steps
    ms_per_step: float | None  # None: shares inferred from samples, no step known
    error: float | None = None  # half width of the 95 % interval of ``share``, if it rests on samples

    @property
    def estimated(self) -> bool:
        """True if it rests on samples: shown with ``~``."""
        return self.error is not None


class RangeRow(Struct, frozen=True, gc=False):
    """A user range, per step."""

    path: str  # names of the enclosing ranges, outermost first, and its own, joined by "/"
    phase: str  # in which most of its time lies
    per_step: float  # uses of it in a step
    ms_per_step: float = field(name="cpu_ms_per_step")
    share: float  # of the step

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def depth(self) -> int:
        """How many ranges enclose it."""
        return self.path.count("/")


class PhaseTable(NamedTuple):
    """The phase breakdown of one process; empty, and false, before its first step."""

    pid: int
    window_s: float = 0.0  # time that it covers
    steps: int = 0  # number of steps that it covers
    rows: tuple[PhaseRow, ...] = ()
    ranges: tuple[RangeRow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def inferred(self) -> bool:
        """True if its rows are from stack samples alone, without markers."""
        return bool(self.rows) and not self.steps

    def row(self, name: str) -> PhaseRow | None:
        return next((row for row in self.rows if row.name == name), None)

    def share_of(self, *names: str) -> float:
        """The share of a step that lies in these phases."""
        return sum(row.share for row in self.rows if row.name in names)

    @property
    def part_of_time(self) -> float:
        """The part (0..1) of the time that goes to steps rather than to evaluation."""
        return 1.0 - self.share_of("eval")

    @property
    def mean_ms(self) -> float | None:
        """The mean time of a step; None if that of one of its phases is not measured."""
        return sum_of_all(row.ms_per_step for row in self.rows if row.name != "eval")

    @property
    def trains(self) -> bool:
        """True if a batch, a forward or backward pass or an update was seen in its steps."""
        return any(row.share for row in self.rows if row.name not in ("other", "eval"))


def phase_table(pid: int, totals: Totals, split: SplitShares) -> PhaseTable:
    """The shares of the phases in the time of a process's steps, ``between`` divided; empty without a step."""
    steps, phases_ns = totals.steps, totals.sums.phases_ns
    if not steps or totals.sums.total_ns <= 0:
        return PhaseTable(pid)
    measured = {name: ns for name, ns in phases_ns.items() if name not in (BETWEEN, "eval")}
    between_ns = totals.sums.between_ns
    whole_ns = sum(measured.values()) + between_ns
    if not whole_ns:
        return PhaseTable(pid)
    moved_ns, errors = _moved(split.moved, {**measured, BETWEEN: between_ns}, whole_ns)
    between_ns += moved_ns.get(BETWEEN, 0.0)
    own_eval_ns = between_ns * split.shares.get("eval", 0.0)  # by samples: what markers count in the steps
    eval_error_ns = max(split.error("eval") * between_ns if own_eval_ns else 0.0, errors.get("eval", 0.0) * whole_ns)
    unmarked_ns = own_eval_ns + moved_ns.get("eval", 0.0)
    in_steps_ns = max(1.0, whole_ns - unmarked_ns)
    rows = []
    for name in PHASES:
        if name == "eval":
            rows.extend(_eval_row(totals.sums, unmarked_ns, eval_error_ns))
            continue
        part = split.shares.get(name, 0.0)
        ns = measured.get(name, 0) + between_ns * part + moved_ns.get(name, 0.0)
        seldom = not ns and split.samples and name in DIVIDED  # no sample found it: it takes little, not nothing
        unsure = max(part, split.error(name) if seldom else split.unsure_of(name))
        error = split.error(name) * between_ns / in_steps_ns if between_ns * unsure > 0.01 * whole_ns else None
        if name in errors:
            error = max(error or 0.0, errors[name])
        rows.append(PhaseRow(name, ns / in_steps_ns, ns / steps / 1e6, error))
    ranges = [
        RangeRow(path, phase, count / steps, total_ns / steps / 1e6, total_ns / totals.sums.total_ns)
        for path, (count, total_ns, phase) in sorted(totals.ranges.items())
    ]
    return PhaseTable(pid, totals.sums.span_s, steps, tuple(rows), tuple(ranges))


def _moved(
    moves: tuple[Moved, ...], measured: Mapping[str, float], whole_ns: float
) -> tuple[dict[str, float], dict[str, float]]:
    """The time, by phase, that samples add to the markers' time or take from it, and the error of the share.

    Time moves between phases that markers measure as one, or out of time that they leave open. A move within its error
    is left out, and so is one far larger than the markers allow: that time lies elsewhere. If neither a fetch nor an
    update is marked, markers leave the time after backward open.
    """
    ns: dict[str, float] = {}
    errors: dict[str, float] = {}
    for move in moves:
        share = move.share
        counted_in = (move.of, BETWEEN) if move.of == "other" else (move.of,)  # by markers, the likeliest first
        of = next((n for n in counted_in if share - move.error <= LARGER * measured.get(n, 0) / whole_ns), None)
        if share < 2 * move.error or of is None:
            continue
        most = min(share * whole_ns, measured.get(of, 0))
        for name, change in ((of, -most), (move.to, most)):
            ns[name] = ns.get(name, 0.0) + change
            errors[name] = max(errors.get(name, 0.0), move.error)
    return ns, errors


def _eval_row(sums: StepStretch, unmarked_ns: float, error_ns: float) -> list[PhaseRow]:
    """Evaluation outside the steps, by markers, and evaluation within them, by samples."""
    eval_ns = sums.eval_ns
    if not eval_ns and not unmarked_ns:
        return []
    window_ns = sums.span_s * 1e9
    share = (eval_ns + unmarked_ns) / window_ns if window_ns else 0.0
    a_batch_ms = eval_ns / max(1, sums.eval_count) / 1e6 if eval_ns else None
    error = min(1.0, error_ns / window_ns) if unmarked_ns > 0.01 * window_ns else None
    return [PhaseRow("eval", min(1.0, share), a_batch_ms, error)]


def inferred_phases(
    pid: int, counts: Counter[str], window_s: float, unsure: Mapping[str, int], *, forward_only: bool = False
) -> PhaseTable:
    """Shares of the samples by phase, with their error; empty while no sample shows training, or ``forward_only``.

    ``window_s``: the time that they cover; ``unsure``: how many samples in the forward pass may be data, and how many
    in "other" may be either.
    """
    total = counts.total()
    trains = counts["backward"] or counts["optimizer"] or (forward_only and counts["forward"])
    if not total or not trains:
        return PhaseTable(pid)
    inside = total - counts["eval"]  # evaluation does not belong to a step
    other = unsure.get("other", 0)
    may_be = {"data": unsure.get("forward", 0) + other, "forward": unsure.get("forward", 0) + other, "other": other}
    rows = [_inferred_row(name, counts[name], inside, may_be.get(name, 0)) for name in STEP_PHASES]
    if counts["eval"]:
        rows.append(_inferred_row("eval", counts["eval"], total))
    return PhaseTable(pid, window_s, rows=tuple(rows))


def _inferred_row(name: str, count: int, total: int, unsure: int = 0) -> PhaseRow:
    share = count / total
    return PhaseRow(name, share, None, max(share_error(share, total), unsure / total))


class Moved(Struct, frozen=True, gc=False):
    """Work that the markers count in one phase although samples show that it belongs to another."""

    of: str
    to: str
    share: float  # of the step
    samples: int  # of all work in steps

    @property
    def error(self) -> float:
        return share_error(self.share, self.samples)


class SplitShares(Struct):
    """The division of the ``between`` time by stack samples, with its error; without samples all of it is forward."""

    shares: dict[str, float] = field(default_factory=lambda: {"forward": 1.0})
    samples: int = 0
    optimizer: float | None = None  # its share of all samples, if closures run inside it
    unsure: float = 0.0  # of "forward", the part that may be "data"
    unknown: float = 0.0  # of "other", the part that may be forward or data
    moved: tuple[Moved, ...] = ()

    @property
    def parts(self) -> tuple[float, ...]:
        """The shares in the order of ``STEP_PHASES``; evaluation counts as ``other``, so that they add up to 1."""
        other = self.shares.get("other", 0.0) + self.shares.get("eval", 0.0)
        return tuple({**self.shares, "other": other}.get(name, 0.0) for name in STEP_PHASES)

    def with_optimizer(self, phases_ns: Mapping[str, float]) -> SplitShares:
        """The shares with the optimizer's own work between two of its closures: its samples, less what markers show."""
        between_ns = phases_ns.get(BETWEEN, 0)
        if self.optimizer is None or not between_ns:
            return self
        whole_ns = sum(ns for name, ns in phases_ns.items() if name != "eval")
        own_ns = self.optimizer * whole_ns - phases_ns.get("optimizer", 0)
        part = min(1.0, max(0.0, own_ns / between_ns))
        shares = {name: share * (1.0 - part) for name, share in self.shares.items()}
        left = 1.0 - part
        unsure, unknown = self.unsure * left, self.unknown * left
        return replace(self, shares={**shares, "optimizer": part}, optimizer=None, unsure=unsure, unknown=unknown)

    def error(self, name: str) -> float:
        by_chance = share_error(self.shares.get(name, 0.0), self.samples) if self.samples else 1.0
        return max(by_chance, self.unsure_of(name))

    def unsure_of(self, name: str) -> float:
        """The error of a share before samples show to which phase its lines belong."""
        if name in ("data", "forward"):
            return self.unsure + self.unknown
        return self.unknown if name == "other" else 0.0
