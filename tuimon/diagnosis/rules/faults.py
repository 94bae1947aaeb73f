"""Faults in the loop that no finding explains, such as sorts in forward, with a remedy of unknown gain.

To add one that the text of a line shows, or the library that runs below it, write a row of ``diagnosis/knowledge.py``.
For any other, write a function here that yields it, with ``is_sure`` for its share of the step, and name it in
``FAULTS``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tuimon.code_origin import is_library_file
from tuimon.diagnosis.cells import Cell, Cells
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import (
    decomposes,
    in_inner_loop,
    loop_over_data,
    update_path,
    whole_sequences,
)
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD
from tuimon.diagnosis.finding import Fix
from tuimon.diagnosis.knowledge import DIFFERENTIATED, GRADIENT_HOOKS, PROPAGATED, SAVED_HOOKS
from tuimon.diagnosis.known import has_small_operations, known_work_at, known_work_in, shown_at
from tuimon.diagnosis.line_text import KEEP_STATE, WAIT_TIPS, views_text, work_at
from tuimon.diagnosis.rule import Unclaimed, is_sure
from tuimon.diagnosis.rules.cores import threads_set_at
from tuimon.diagnosis.step_model import without
from tuimon.interval import Interval
from tuimon.native_code import CodeKind
from tuimon.records import PASSES, Place
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import at, percent
from tuimon.threshold import LARGE, LARGER, MIN_SAMPLES, MOST, REPORTED, TINY
from tuimon.torch_code import composes, multiplies


class Fault(NamedTuple):
    """A known fault of the loop."""

    what: str  # the part of a step, and its work: "40 % in sorts"
    remedy: Fix | None
    at: Place | None = None


class Unexplained(NamedTuple):
    """The part of a step that no finding explains, as faults are found in it."""

    evidence: Evidence
    cells: Cells  # shares of a step
    computes: dict[str, float]  # by phase, the share of a step in which the training thread runs a pass or an update
    samples: Samples  # the training thread's in these phases
    found: list[Fault]  # by the functions before, in the order of ``FAULTS``

    def is_sure(self, share: float, least: float = REPORTED) -> bool:
        """True if a share of the step is surely that much of it without waits for cores that others have."""
        own = 1.0 - self.cells.where(doing={"others"}).share
        return is_sure(self.evidence, share / max(TINY, own), least)


def faults_in(unclaimed: Unclaimed) -> list[Fault]:
    """All faults of a loop; only those in its passes if findings show the cause of the loop's waits."""
    samples, found = unclaimed.evidence.samples.where(phase=PASSES).without_bare_module_calls, list[Fault]()
    rest = Unexplained(unclaimed.evidence, unclaimed.cells, unclaimed.computes, samples, found)
    for faults in IN_PASSES if unclaimed.holds_up else FAULTS:
        found += [*faults(rest)]
    return found


# -- faults in the passes and the update


def known_work(rest: Unexplained) -> Iterator[Fault]:
    """Work that a row of ``knowledge.py`` names."""
    samples, computing = rest.samples, sum(rest.computes.values())
    counts = samples.counted(lambda row: [(known, row.phase)] if (known := known_work_in(row.node)) is not None else [])
    for known in dict.fromkeys(known for (known, _), _ in counts.most_common()) if samples.total >= MIN_SAMPLES else ():
        hooks = known.what in (SAVED_HOOKS[0], GRADIENT_HOOKS[0])  # which may write to a disk, and do not compute then
        of = {name: rest.evidence.phases.share_of(name) for name in PASSES} if hooks else rest.computes
        share = sum(part * counts[known, name] / (samples.phases[name] or 1) for name, part in of.items())
        what, fix = known.what, Fix(known.action)
        if what in DIFFERENTIATED and not counts[known, "backward"]:
            what += ", with its part of backward"
            share += rest.computes["backward"] * counts[known, "forward"] / (samples.phases["forward"] or 1)
        if is_sure(rest.evidence, share / (computing or 1.0)):  # waits for a core shorten both sides
            rows = Samples(tuple(row for row in samples.rows if known_work_in(row.node) == known))
            lines, hot = rows.counted(lambda row: filter(None, [shown_at(known, row.node)])), rows.hottest()  # noqa: B023
            fix = fix.with_upper_bound(1.0 / (1.0 - share)) if hooks else fix
            if what == PROPAGATED and has_same_input(rest.evidence, share):
                fix = without(rest.evidence, "model", fix.action, Interval.around(share)).with_open_gain
            yield Fault(
                f"{percent(share)} in {what}", fix, max(lines, key=lines.__getitem__, default=hot and hot.place)
            )


def has_same_input(evidence: Evidence, share: float) -> bool:
    """True if the input of work of this share stays the same: no batch comes, and no gradient goes through the work.

    A gradient would take backward as long as the work itself.
    """
    batches = evidence.data.fetches or evidence.phases.share_of("data") >= TINY
    return not batches and evidence.phases.share_of("backward") < share


#: Work below Python that is not the model's, by kind of library: its name, and the remedy.
_BELOW_PYTHON: dict[CodeKind, tuple[str, str]] = {
    "pool": (
        "OpenMP, which waits for the other threads of an operation",
        "try fewer threads (torch.set_num_threads): operations are small, or unevenly divided",
    ),
    "kernel": (
        "the kernel, for other work than new memory",
        "see which system calls take that time: strace -c -f -p PID, which slows the training while it runs",
    ),
}


def below_python(rest: Unexplained) -> Iterator[Fault]:
    """Threads of a pool that wait for longer than one of them works; or more time in the kernel than a model needs.

    A pool also waits for a thread of its own that waits for a core. Most of what models need of the kernel is page
    faults, which have a cause of their own.
    """
    native, computing = rest.evidence.native_in(*PASSES), sum(rest.computes.values())
    for_cores = rest.cells.where(PASSES, via="core").share
    least = {"pool": 1.0 / (rest.evidence.process.intra_op_threads or math.inf) + for_cores, "kernel": LARGE}
    for kind, (does, instead) in _BELOW_PYTHON.items():
        part = native.share(kind) or 0.0
        if part >= least[kind] and rest.is_sure(part * computing):
            yield Fault(f"{percent(part * computing)} in {does}", Fix(instead))


#: A state that decays in each step of a loop: ``level = keep * level + gain * x``, ``v = v * decay + x``.
_DECAYS = re.compile(r"^\s*(\w+) = (?:[\w.\[\], :]+ \* \1|\1 \* [\w.\[\], :]+) \+ ")


def recurrence(rest: Unexplained) -> Iterator[Fault]:
    """A state that decays from step to step of a loop in forward, by operations of its own; backward repeats them."""
    is_inner = in_inner_loop(rest.evidence.samples)

    def decays(node: StackNode) -> bool:
        line = node.user_line
        runs_layer = any(frame.kind == "module" for frame in node.called)
        return line is not None and is_inner(node) and not runs_layer and _DECAYS.search(line.text) is not None

    hot = rest.samples.where(phase="forward").hottest(decays)
    share = hot.share * (rest.computes["forward"] + rest.computes["backward"]) if hot is not None else 0.0
    if hot is not None and hot.samples >= MIN_SAMPLES and is_sure(rest.evidence, share):
        line = at(hot.place)
        fewer = (
            f"compute all steps of the loop at {line} at once (with constant factors it is a convolution, otherwise a"
            " scan), or take fewer; values that decay towards zero may become denormal, which are slow wherever they"
            " go: try torch.set_flush_denormal(True)"
        )
        what = f"{percent(share)} in a recurrence, computed step by step, with its part of backward"
        yield Fault(what, Fix(fewer), hot.place)


def one_function(rest: Unexplained) -> Iterator[Fault]:
    """A loop over parts of the data, of small operations; else a function whose own work is most of forward.

    What the function calls of other packages counts as its own, and of torch what only composes operations; calls of
    modules, matrix products and waits do not. Backward does not show which function it belongs to.
    """
    evidence, forward = rest.evidence, rest.evidence.phases.share_of("forward")
    loop, native = loop_over_data(evidence.samples.in_steps), evidence.native_in("forward")
    is_named = loop is not None and loop.place.code in {each.at.code for each in rest.found if each.at}
    if loop is not None and not is_named and has_small_operations(native) and is_sure(evidence, loop.share * forward):
        line = at(loop.place)
        once = (
            f"replace the loop at {line} with operations on whole tensors, unless an iteration needs another's result"
        )
        yield Fault(f"{percent(loop.share * forward)} in small operations of the loop at {line}", Fix(once), loop.place)
        return

    def is_own(node: StackNode) -> bool:
        line = node.user_line
        is_own = all(is_library_file(frame.file) or composes(frame.file) for frame in node.called)
        return line is not None and is_own and node.activity not in WAIT_TIPS and not multiplies("", line.text)

    samples = rest.samples.where(phase="forward")
    hot = samples.hottest(is_own) if samples.total >= MIN_SAMPLES else None
    is_named = hot is not None and hot.place in {each.at for each in rest.found}
    if hot is None or is_named or hot.share < MOST or not is_sure(evidence, hot.share * forward):
        return
    known, line = known_work_at(hot.place, rest.samples, native=native), at(hot.place)
    see = f"see whether {line} has to be computed in each step: keep what depends on neither batch nor weights, and"
    action = known.action if known is not None else f"{see} check the shapes of its tensors"
    if action not in {each.remedy.action for each in rest.found if each.remedy is not None}:
        yield Fault(f"{percent(hot.share * forward)} in {line}", Fix(action), hot.place)


def sequences_again(rest: Unexplained) -> Iterator[Fault]:
    """A model that draws tokens without what it has computed for those before."""
    again, forward = whole_sequences(rest.evidence.samples.in_steps), rest.evidence.phases.share_of("forward")
    share = rest.computes["forward"] * min(1.0, again.share / (forward or 1.0)) if again is not None else 0.0
    if again is not None and rest.is_sure(share):
        what = f"{percent(share)} in a model that runs over whole sequences for each token that it appends"
        yield Fault(what, Fix(KEEP_STATE), again.place)


def products_in_update(rest: Unexplained) -> Iterator[Fault]:
    """An optimizer that multiplies matrices, such as Muon or Shampoo, for most of the step."""
    share, hot = rest.computes["optimizer"], rest.evidence.hottest_in("optimizer")
    if hot is not None and multiplies(hot.place.function, hot.place.source) and rest.is_sure(share, MOST):
        fewer = (
            "multiply on the shorter side of each matrix (transpose it if it is tall), and all matrices of one shape at"
            " once, with torch.bmm()"
        )
        yield Fault(f"{percent(share)} in the update, above all in products of matrices", Fix(fewer), hot.place)


# -- faults in all of the loop

#: The remedy on a phase's hottest line.
_LESS = "see whether {} can do less, or all at once"


def long_backward(rest: Unexplained) -> Iterator[Fault]:
    """Backward that takes far longer than the forward pass before it, which only decompositions of matrices may.

    Hooks in backward are known work.
    """
    forward, backward = rest.computes["forward"], rest.computes["backward"]
    runs = rest.evidence.times_run("backward")
    times = backward / (runs * forward or math.inf)
    samples = rest.evidence.samples.where(phase="backward")
    is_known = rest.evidence.samples.where(phase="forward").part(decomposes) >= LARGE
    is_known = is_known or samples.part(lambda node: node.hook is not None) >= LARGE
    if times >= LARGER * BACKWARD_PER_FORWARD and not is_known and rest.is_sure(backward):
        see = (
            "see what backward goes through: results kept from earlier steps (detach() them), retain_graph=True, or"
            " indexing with repeated positions, whose gradients are added one by one"
        )
        hot = rest.evidence.hottest_in("backward")  # perhaps the program's own derivative of a function
        in_users_code = samples.part(lambda node: all(frame.kind != "backward" for frame in node.called))
        if hot is not None and in_users_code >= MOST:
            see = _LESS.format(at(hot.place))
        what = f"{'each pass of ' if runs > 1 else ''}backward takes {times:.0f} times as long as forward"
        yield Fault(what, Fix(see), hot and hot.place)


def on_one_thread(rest: Unexplained) -> Iterator[Fault]:
    """Large operations on one thread, next to cores that the run does not use. Measured on two cores, a second thread
    gains 1.05x to 1.6x if calls and the allocation of results take less than a tenth of the time; otherwise it costs
    time.
    """
    evidence, share = rest.evidence, sum(rest.computes.values())
    here, native = evidence.machine, evidence.native_in(*PASSES)
    small, taken, free = native.without("kernel").share("python", "memory"), here.cores_taken, here.free_cores
    idle = free if taken is None or taken.idle is None else min(free, taken.idle)
    unused, if_left = (round(cores / max(1, len(here.trainers))) for cores in (idle, free))
    number = 1 + (unused or if_left)
    is_large = small is not None and small < REPORTED and rest.is_sure(share, MOST)
    if evidence.process.intra_op_threads != 1 or number == 1 or not is_large:
        return
    cores = "on cores that nobody uses" if unused else "once other programs leave them cores"
    how = f"torch.set_num_threads({number}) or OMP_NUM_THREADS={number}"
    if number > 2:  # how far more than two threads help was not measured
        how = f"try torch.set_num_threads(2), then more, up to {number}, as long as steps get shorter"
    if 1 in here.in_environment:
        how += "; the training was started with OMP_NUM_THREADS=1 (torchrun sets it)"
    fix = Fix(f"let {'2' if number == 2 else 'several'} threads share each operation, {cores}: {how}")
    most = 1.0 / (1.0 - share * (1.0 - 1.0 / number))
    yield Fault("all on one thread", fix.with_upper_bound(most), next(iter(threads_set_at(here, 1)), None))


def views_sent_whole(rest: Unexplained) -> Iterator[Fault]:
    """Workers that copy far more than a batch to send it, while the training waits for the cores that they take."""
    views, for_cores = rest.evidence.data.views, rest.cells.where(PASSES, via="core").share
    if views is not None and is_sure(rest.evidence, for_cores):
        what, copied = views_text(views)
        yield Fault(what, Fix(copied), views.item)


#: Time outside the model's passes: how to recognise it, its name, and the remedy; the first match counts.
_BESIDE: tuple[tuple[Callable[[Cell], bool], str, str | None], ...] = (
    (lambda cell: cell.doing == "others", "waits for a core that others have", None),  # no fault of the loop
    (
        lambda cell: "core" in cell.via,
        "waits for a core",
        "see which of the run's threads have the cores, and whether fewer do",
    ),
    (lambda cell: cell.doing == "gc", "garbage collections", None),
    (lambda cell: cell.doing == "exchange" or "rank" in cell.via, "exchanges with other ranks", None),
    (lambda cell: cell.phase == "data", "data", _LESS),
    (lambda cell: cell.phase == "other", "work outside the passes", _LESS),
)


def beside_the_passes(rest: Unexplained) -> Iterator[Fault]:
    """Time outside the model's passes, by its kind."""
    left = list(rest.cells)
    for is_it, what, remedy in _BESIDE:
        cells, left = [cell for cell in left if is_it(cell)], [cell for cell in left if not is_it(cell)]
        if is_sure(rest.evidence, sum(cell.interval.low if cell.basis == "sampled" else cell.share for cell in cells)):
            hot = rest.evidence.hottest_in(cells[0].phase) if remedy == _LESS else None
            line = work_at(hot, update_path(rest.evidence.samples)) if hot is not None else what
            yield Fault(
                f"{percent(Cells(cells).share)} in {what}",
                Fix(remedy.format(line)) if remedy else None,
                hot and hot.place,
            )


IN_PASSES: tuple[Callable[[Unexplained], Iterator[Fault]], ...] = (
    known_work,
    recurrence,
    below_python,
    sequences_again,
    one_function,
    products_in_update,
)
#: In the order of words in the headline, and of remedies.
FAULTS = (*IN_PASSES, long_backward, views_sent_whole, on_one_thread, beside_the_passes)
