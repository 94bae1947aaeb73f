"""The rule about side work: all work of the loop that is not training, evaluation included."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from tuimon.code_origin import is_library_file
from tuimon.diagnosis.cells import Cell, CellPhase, Cells, step_cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import is_collecting, library_place, update_path, user_path, with_library
from tuimon.diagnosis.evidence.process import works
from tuimon.diagnosis.finding import Change, Finding, Fix, bounds, calls_per_step, new_finding
from tuimon.diagnosis.knowledge import BELOW, COMPRESSING
from tuimon.diagnosis.known import figures, known_work_at, known_work_in
from tuimon.diagnosis.line_text import WAIT_TIPS, KnownWork, WaitTip, at_hot, idle_part, in_library, wait_of, work_at
from tuimon.diagnosis.rule import Claim, Unclaimed, claim_on, is_sure
from tuimon.diagnosis.rules.advice import options
from tuimon.diagnosis.step_model import host_model, without, without_if_sure
from tuimon.interval import Interval
from tuimon.native_code import NativeUse
from tuimon.records import PASSES, TRAINING_PHASES, Place
from tuimon.session.phase_table import PhaseRow
from tuimon.session.stacks.activity import outer_calls
from tuimon.session.stacks.samples import HotLine, Sample, Samples, hottest_place
from tuimon.session.stacks.trie import StackNode, user_place
from tuimon.text import at, percent, plain
from tuimon.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, SMALL, UNUSUAL

SideWorkKind = Literal["checkpoint", "network"]
#: Calls that training makes at every update in addition to the optimizer's step; they cannot be made less often. (A
#: user function has frames of its own.)
_UPDATE_CALLS = re.compile(
    r"\b(?:(?:aggregate|all_?reduce|average|centrali[sz]e|clip|combine|jac_to|normali[sz]e|project|reduce|scale|sync|zero)_?"
    r"\w*grad\w*|unscale_)\s*\("
)
#: User functions that are the two parts of an update that minimizes sharpness.
_PARTS_OF_UPDATE = re.compile(r"(?:.*\.)?(?:first|second|ascent|descent)_step")

#: Tensors that a user saves by name, which may be views: a model's state hardly has any.
_SAVES_TENSORS = re.compile(r"\btorch\.save\((?!.*(?:state|model|net|ckpt|checkpoint|weight|param))")


def side_work(evidence: Evidence) -> Finding | None:
    """Checkpoints, logging, metrics, evaluation: time outside the phases, with the line that takes most of it."""
    other, evaluation = evidence.phases.row("other"), evidence.phases.row("eval")
    if other is None or evidence.gpu.awaits_times:
        return None
    beside = other.share * evidence.phases.part_of_time
    if evaluation is not None and evaluation.share >= max(UNUSUAL, beside):
        return _evaluation(evidence, evaluation)
    return _in_steps(evidence, other) if evidence.phases.trains else None


def _evaluation(evidence: Evidence, evaluation: PhaseRow) -> Finding:
    """Evaluation, if it takes much of the time, and more of it than side work.

    A sample counts for the user's innermost function before torch is entered: a module's own ``forward`` is called by
    both training and evaluation.
    """
    rows = evidence.samples.without_imports.where(phase="eval").rows
    placed = [(user_place(path), row.count) for row in rows if (path := user_path(row))]
    share, hot = evaluation.share, with_library(hottest_place(placed), evidence.samples, "eval")
    known = known_work_at(hot and hot.place, evidence.samples.where(phase="eval"))
    model, others = host_model(evidence), [rank for rank in evidence.compared if rank.pid != evidence.pid]
    less = model.fix(
        f"evaluate less often, or on part of the data{options(evidence).evaluate}", Change("evaluation", 0.0)
    )
    divided = model.fix(
        "let all ranks evaluate, each a part of the data (DistributedSampler): the others wait meanwhile",
        Change("evaluation", 1.0 / max(1, evidence.world_size)),
    )
    is_alone = bool(others) and all(rank.phases.share_of("eval") < share * SMALL for rank in others)
    return new_finding(
        f"{percent(share)} of the time goes to evaluation, not training{in_library(hot, known)}",
        less,
        *([divided] if is_alone else []),
        *([Fix(known.action)] if known is not None else []),
        cause="evaluation",
        share=share,
        at=hot,
        eval_share=share,
        eval_ms_per_batch=evaluation.ms_per_step,
        hot_share=hot.share if hot else None,
    )


# -- waits of the training thread itself, of unknown gain

_EVENTS = WAIT_TIPS["connection"]


def wait_in_pass(unclaimed: Unclaimed) -> Finding | None:
    """The longest wait in a pass or an update: time that is not the model's work."""
    waits = [
        cell
        for cell in unclaimed.cells.where(phase=PASSES)
        if not cell.via and (cell.doing in WAIT_TIPS or (cell.doing == "pace" and _wait_tip(cell) is _EVENTS))
    ]
    longest = max(waits, key=lambda cell: cell.cost.low, default=None)
    if longest is None or not is_sure(unclaimed.evidence, share := longest.cost.low, early=False):
        return None
    what = _wait_tip(longest).what
    headline = f"the training thread {what} in {longest.phase} for at least {percent(share)} of each step"
    return _wait_at_line(unclaimed.evidence, longest, share, headline)


def _wait_tip(cell: Cell) -> WaitTip:
    """The words for a wait, or for what sets the pace of a loop."""
    at = cell.node.activity if cell.doing == "pace" and cell.node is not None else cell.doing
    return WAIT_TIPS.get(at, _EVENTS)


def sleep_that_paces(evidence: Evidence, phase: CellPhase) -> Finding | None:
    """The sleep, or wait for events, that sets the loop's pace and fills a phase apart from waits for a core.

    Its share is the whole phase's, as the table of phases has it.
    """
    whole = step_cells(evidence).where(phase={phase})
    found = Cells(cell for cell in whole if "core" not in cell.via)
    paced = found.where(doing={"pace"})
    longest = max(paced, key=lambda cell: cell.share, default=None)
    if longest is None or paced.share < MOST * found.share or not is_sure(evidence, paced.share):
        return None
    waits = "is side work" if phase == "other" else "waits for data"
    sleeps = longest.node is not None and longest.node.activity == "sleep"
    how = "is paced by time.sleep()" if sleeps else "waits for the next event or message"
    headline = f"{percent(whole.share)} of each step {waits}: the loop {how} at {{}}"
    return _wait_at_line(evidence, longest, whole.share, headline)


def _wait_at_line(evidence: Evidence, longest: Cell, share: float, headline: str) -> Finding | None:
    """A finding about a wait, of unknown gain; ``headline``: a template over its line."""
    node = longest.node
    place = node.place if node is not None else None
    if node is None or place is None:
        return None
    tip = _wait_tip(longest)
    known = known_work_in(node) if node.hook is not None or node.activity == "connection" else None
    action = f"{tip.less.format(at(place))}{f'; {known.action}' if known is not None else ''}"
    action += _holder(evidence, longest.doing, longest.interval.low)
    return new_finding(
        headline.format(at(place)),
        known.action if known is not None and node.hook is not None else action,
        severity="info",
        share=share,
        at=place,
        step_ms=evidence.phases.mean_ms,
    )


def _holder(evidence: Evidence, wait: str, share: float) -> str:
    """Words for the thread, with its line, that keeps the training thread waiting for a lock, or for a thread.

    No sample shows who holds a lock, but a thread that has nothing to do holds none for long. So it is the only other
    thread that works, reads or writes for as long, if there is just one. ``share``: of the time, at least.
    """

    def acts(node: StackNode) -> bool:
        return works(node) and node.activity not in ("sleep", "connection", "prompt")

    lines = {tid: each.where(acts).hottest() for tid, each in evidence.others.items() if each.part(acts) >= share}
    rows = [row for row in evidence.threads if row.tid in lines]
    hot = lines[rows[0].tid] if wait in ("lock", "thread") and len(lines) == len(rows) == 1 else None
    return f"; meanwhile thread {plain(rows[0].name)} is at {at_hot(hot)}" if hot is not None else ""


# -- work in steps


class _Work(Struct, frozen=True):
    """The side work of a step, and its share."""

    evidence: Evidence
    claim: Claim
    hot: HotLine | None
    hot_part: float  # the part of the work that the hot function takes
    runs_model: bool
    kind: SideWorkKind | None
    native: NativeUse  # the code that the training thread runs during the work

    @property
    def at(self) -> str:
        """The call that a user can leave out."""
        main = self.evidence.samples
        path = update_path(main) or main.training_path  # the latter if nothing trains
        return work_at(self.hot, path) if self.hot is not None else ""

    @property
    def how_by_option(self) -> str:
        """How to use the option of the library that owns the loop and does the work; empty if there is none."""
        library = self.hot.library if self.hot is not None and not self.runs_model else None
        own, calls = options(self.evidence), outer_calls(self.hot.place.source) if self.hot else []
        if own.loop and self.hot is not None and {"log", "log_dict"}.intersection(calls):
            library = self.hot.place._replace(function="log")
        return own.less_of(library) if library is not None else ""

    @property
    def known(self) -> KnownWork | None:
        """Public knowledge about the work's line."""
        if self.hot is None:
            return None
        if self.kind == "checkpoint":
            compresses = (self.native.without("kernel").share("compression") or 0.0) >= MOST
            return KnownWork(COMPRESSING, BELOW[COMPRESSING][1]) if compresses else None
        native = NativeUse() if self.runs_model or self.wait else self.native
        samples = self.evidence.samples
        if self.hot.library is not None:  # all phases have its line
            samples = samples.where(_is_in(self.hot.library), phase="other")
        return known_work_at(self.hot.place, samples, native=native)

    @property
    def wait(self) -> str:
        """The advice for a line that waits for others; empty if the line works itself."""
        wait = wait_of(self.hot.place, self.evidence.samples) if self.hot is not None else None
        if wait not in ("lock", "thread", "message", "child", "network"):
            return ""
        return WAIT_TIPS[wait].less.format(self.at) + _holder(self.evidence, wait, self.claim.lost.low * self.hot_part)

    @property
    def advice(self) -> str:
        """How to make the work cheaper, or do less of it."""
        at, known, option = self.at, self.known, self.how_by_option
        if self.hot is None:
            return "look for logging, metrics or checkpoints in the loop"
        if known is not None:
            return f"make {at} cheaper ({known.action}); or {option or 'run it less often'}"
        if not self.evidence.phases.share_of(*TRAINING_PHASES):  # each step of a model that runs needs it
            return f"make {at} cheaper, or do it in another process while the model runs"
        if option:
            return option
        if self.kind == "checkpoint":
            return (
                f"save less often at {at}, or in the background: a thread writes a copy of the weights"
                " (torch.distributed.checkpoint.async_save)"
            )
        less = "or on part of the data" if self.runs_model else "asynchronously, or after the epoch"
        return self.wait or f"run {at} less often, {less}"

    def without(self, action: str, part: float) -> Fix:
        """The fix that saves this part of the function's work."""
        if self.claim.on_gpu is not None:
            return without_if_sure(self.evidence, action, self.claim.on_gpu.times(part * self.hot_part))
        return without(self.evidence, "side_work", action, self.claim.lost.times(part * self.hot_part))


#: By kind, the words for it and the stacks that do it; a checkpoint comes first, even over the network.
_KINDS: dict[SideWorkKind, tuple[str, Callable[[StackNode], bool]]] = {
    "checkpoint": ("saving checkpoints", lambda node: node.has("saves")),
    "network": ("calls over the network", lambda node: node.activity == "network"),
}


def _in_steps(evidence: Evidence, other: PhaseRow) -> Finding | None:
    """The side work within steps, if it takes a large part of them."""
    samples = evidence.samples.where(lambda node: not is_collecting(node))
    if (paced := sleep_that_paces(evidence, "other")) is not None:
        return paced
    claim = claim_on(evidence, "other", "gc", "sync", "pace")
    side, update = samples.where(phase="other"), _Update(samples)
    beside_update = 1.0 - sum(row.count for row in side.rows if update.holds(row)) / max(1, side.total)
    # evaluation without a marker
    runs_model = side.part(lambda node: node.has("module") and not node.computes_metric) >= MOST
    early = not evidence.phases.inferred  # right after attaching, one checkpoint may be half of it
    if claim.share * beside_update < REPORTED or not is_sure(evidence, claim.share, error=claim.error, early=early):
        return None
    if other.estimated and claim.share < LARGE and runs_model:
        return None
    hot, kind = _side_function(samples, update), None
    if hot is not None:  # the kind that most samples at its line have
        file, line, *_ = hot.library or hot.place
        at_line = side.where(lambda node: any((f.file, f.line) == (file, line) for f in node.frames))
        kind = next((kind for kind, (_, is_it) in _KINDS.items() if at_line.part(is_it) >= MOST), None)
    work = _Work(
        evidence=evidence,
        claim=claim,
        hot=hot,
        hot_part=beside_update * (hot.share if hot else 1.0),
        runs_model=runs_model,
        kind=kind,
        native=evidence.native_in("other"),
    )
    fix = work.without(work.advice, 1.0)
    if hot is None and samples.total and fix.gain is not None:
        # samples do not show what could be done less often
        fix = fix._replace(gain=Interval(1.0, fix.gain.high))
    fixes = [fix]
    if work.kind == "checkpoint" and hot is not None and hot.library is None:  # nobody can do without checkpoints
        fixes.append(work.without(f"save half as often at {work.at}", 0.5))
        if _SAVES_TENSORS.search(hot.place.source):
            fixes.append(Fix("save a clone() of each tensor that is a view: torch.save() writes all of its storage"))
    return new_finding(
        _headline(work),
        *fixes,
        cause=work.kind,
        share=claim.share,
        at=hot,
        evidence={
            "other_ms_per_step": claim.ms_per_step,
            "step_ms": evidence.phases.mean_ms,
            "hot_share": hot.share if hot else None,
            **(calls_per_step(evidence.repeats(hot.place)) if hot else {}),
            **figures(work.native),
            **(bounds("gpu_waits", claim.on_gpu) if claim.on_gpu is not None else {}),
            **({"speedup_at_most": fix.gain and fix.gain.high} if claim.on_gpu is not None else {}),
        },
    )


def _headline(work: _Work) -> str:
    """The headline, with the function's own share of the step unless it is nearly all side work."""
    share, on_gpu = work.claim.share, work.claim.on_gpu
    waits = f"{percent(share)} of each step is "
    if on_gpu is not None:
        waits = f"the GPU waits {idle_part(on_gpu)} of each step for "
    is_all, kind = work.hot_part >= NEARLY_ALL, _KINDS[work.kind][0] if work.kind is not None else "one function"
    what = f"side work {'that runs a model, such as evaluation' if work.runs_model else 'outside the model'}"
    if work.kind is not None and is_all:
        what = kind
    elif work.hot is not None and not is_all:
        what += f", {percent(share * work.hot_part)} in {kind}"
    return f"{waits}{what}{in_library(work.hot, work.known)}"


# -- the function to blame, by the places at which samples leave the path of training


def _side_function(samples: Samples, update: _Update) -> HotLine | None:
    """The user's function with most side work, at its line before torch is entered; None if there are no samples.

    If a library's loop runs below the line, as in ``trainer.train()``, only the time in the library's function that is
    named with the line counts.
    """
    side = samples.without_imports.where(lambda node: node.activity != "ranks", phase="other")
    side = Samples(tuple(row for row in side.rows if not update.holds(row)))
    placed = [(user_place(user_path(row)), row.count) for row in side.rows]
    hot = side.with_callees(hottest_place(placed), samples.training_path)
    hot = with_library(hot, Samples.joined((side, samples.where(phase="backward"))), "other")
    if hot is None or hot.library is None:
        return hot
    place = hot.place
    at_line = side.where(lambda node: node.place == place)
    inside = at_line.where(_is_in(hot.library)).total
    return hot._replace(share=hot.share * inside / at_line.total, samples=inside) if at_line.total else hot


def _is_in(library: Place) -> Callable[[StackNode], bool]:
    """A test of stacks: do they end in this function of a library, or in what it calls?"""
    return lambda node: (at := library_place(node)) is not None and at.code == library.code


class _Update:
    """The stacks that belong to each update, apart from the optimizer's step."""

    def __init__(self, samples: Samples) -> None:
        in_backward, in_optimizer = (samples.where(phase=phase).rows for phase in TRAINING_PHASES)
        # lines that lead only to the optimizer's step, at which Opacus clips and adds noise before torch's own step;
        # ``trainer.fit(model)`` is the line of backward as well
        self._lines = {(f.file, f.line) for row in in_optimizer for f in user_path(row)[-1:]}
        self._lines -= {(f.file, f.line) for row in in_backward for f in user_path(row)}
        #: The functions of a library that owns the loop.
        self._functions = {
            f.code for row in (*in_backward, *in_optimizer) for f in row.node.outside_torch if is_library_file(f.file)
        }

    def holds(self, row: Sample) -> bool:
        """True if a sample belongs to updates: by its line, or by a library function that leads to backward and step.

        Users cannot make ``Trainer.train()`` do its work around each update less often, such as asking the schedule for
        the learning rate. Its other calls, such as a logger, are side work.
        """
        path = user_path(row)
        if any((f.file, f.line) in self._lines or _UPDATE_CALLS.search(f.text) for f in path[-1:]):
            return True
        if any(_PARTS_OF_UPDATE.fullmatch(f.function) for f in path):
            return True
        library = library_place(row.node)
        return library is not None and library.code in self._functions
