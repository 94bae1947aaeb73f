"""The part of a step that no finding explains, in words; nothing holds a loop back if that is the model's own work."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tuimon.code_origin import is_library_file
from tuimon.diagnosis.cells import Cell, CellPhase, Cells, of_step
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import decomposes, loop_over_data, update_path
from tuimon.diagnosis.evidence.ranks import BACKWARD_PER_FORWARD
from tuimon.diagnosis.finding import WARNING_GAIN, Finding, Fix, verdict
from tuimon.diagnosis.known import DIFFERENTIATED, GRADIENT_HOOKS, SAVED_HOOKS, has_small_operations, known_in, known_of
from tuimon.diagnosis.rule import Unclaimed, is_sure
from tuimon.diagnosis.rules.cores import threads_set_at
from tuimon.diagnosis.words import WAIT_TIPS, Known, percent, work_at
from tuimon.native_code import CodeKind
from tuimon.records import MODEL, PASSES, Place
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.text import at, code_place, function_text, plain
from tuimon.threshold import LARGE, LARGER, MIN_SAMPLES, MOST, REPORTED
from tuimon.torch_code import composes, multiplies

#: Functions that only call others: their time belongs to the functions that they call.
_LEADS = re.compile(r"_call_impl|_engine_run_backward|tuimon_\w+|wrapper|step")


#: Why backward may take far longer than the pass that it follows, and what to do.
_LONG_BACKWARD = (
    "see what backward goes through: results kept from earlier steps (detach() them), retain_graph=True, or indexing"
    " with repeated positions, whose gradients are added one by one"
)


_FEWER_PRODUCTS = (
    "multiply on the shorter side of each matrix (transpose it if it is tall), and all matrices of one shape at once,"
    " by torch.bmm()"
)
#: The advice on a phase's hottest line.
_LESS = "see whether {} can do less, or all at once"
#: Time outside the model's passes: how to recognise it, its name, and the advice; the first match counts.
_BESIDE: tuple[tuple[Callable[[Cell], bool], str, str | None], ...] = (
    (
        lambda cell: "core" in cell.via,
        "waits for a core",
        "see what uses the cores: other programs (top), or more threads than there are cores",
    ),
    (lambda cell: cell.doing == "gc", "garbage collections", None),
    (lambda cell: cell.doing == "exchange" or "rank" in cell.via, "exchanges with other ranks", None),
    (lambda cell: cell.phase == "data", "data", _LESS),
    (lambda cell: cell.phase == "other", "work outside the passes", _LESS),
)


#: Work below Python that is not the model's, by kind of library: the least part of the CPU time in the passes, its
#: name, and the advice. Every model spends some time in the kernel, most of it on page faults, which have a cause of
#: their own.
_BELOW_PYTHON: tuple[tuple[CodeKind, float, str, str], ...] = (
    (
        "pool",
        0.0,
        "OpenMP, which waits for the other threads of an operation",
        "try fewer threads (torch.set_num_threads): operations are small, or unevenly divided",
    ),
    (
        "kernel",
        LARGE,
        "the kernel, for other work than new memory",
        "see which calls take it: strace -c -f -p PID, which slows the training while it runs",
    ),
)


def _heavy_line(evidence: Evidence) -> HotLine | None:
    """The user's function whose own operations are most of forward, at its hottest line; the share is of the step.

    What it calls of other packages counts as its own, and of torch what only composes operations; calls of modules,
    matrix products and waits do not. Backward does not show which function it belongs to.
    """
    samples = evidence.samples.where(phase="forward").whole

    def is_own(node: StackNode) -> bool:
        line = node.user_line
        is_own = all(is_library_file(frame.file) or composes(frame.file) for frame in node.called)
        return line is not None and is_own and node.activity not in WAIT_TIPS and not multiplies("", line.text)

    hot = samples.hottest(is_own) if samples.total >= MIN_SAMPLES else None
    if hot is None or hot.share < MOST:
        return None
    return hot._replace(share=hot.share * evidence.phases.share_of("forward"))


class Against(NamedTuple):
    """A fact that shows a fault of the loop, in words, with a remedy of unknown gain and its line."""

    what: str
    action: str | Fix | None
    at: HotLine | Place | None = None


def against_order(unclaimed: Unclaimed) -> Iterator[Against]:
    """All known facts about the rest, except that the model computes."""
    yield from in_passes(unclaimed)
    evidence, computing = unclaimed.evidence, unclaimed.cells.computing
    forward, backward = (computing.where({name}).share for name in MODEL)
    runs = times_run(evidence, "backward")
    times = backward / (runs * forward or math.inf)
    decomposing = evidence.samples.where(phase="forward").part(decomposes)
    is_long = times >= LARGER * BACKWARD_PER_FORWARD and decomposing < LARGE
    in_backward = evidence.samples.where(phase="backward")
    if is_long and is_sure(evidence, backward) and in_backward.part(lambda node: node.hook is not None) < LARGE:
        hot = evidence.hottest_in("backward")  # perhaps the program's own derivative of a function
        calls = in_backward.part(lambda node: all(frame.kind != "backward" for frame in node.called))
        what = f"{'each pass of ' if runs > 1 else ''}backward takes {times:.0f} times as long as forward"
        yield Against(what, _LESS.format(at(hot.place)) if hot and calls >= MOST else _LONG_BACKWARD, hot)
    yield from _on_one_thread(evidence, computing.share)
    left = list(unclaimed.cells)
    for is_it, what, action in _BESIDE:
        cells, left = [cell for cell in left if is_it(cell)], [cell for cell in left if not is_it(cell)]
        if is_sure(evidence, sum(cell.interval.low if cell.basis == "sampled" else cell.share for cell in cells)):
            hot = evidence.hottest_in(cells[0].phase) if action == _LESS else None
            line = work_at(hot, update_path(evidence.samples)) if hot is not None else what
            yield Against(f"{percent(Cells(cells).share)} in {what}", action and action.format(line), hot)


def in_passes(unclaimed: Unclaimed) -> Iterator[Against]:
    """What is known of the work in the passes and the update."""
    evidence, samples = unclaimed.evidence, unclaimed.evidence.samples.where(phase=PASSES).whole
    computes = {name: unclaimed.cells.computing.where({name}).share for name in PASSES}
    counts = samples.counted(lambda row: [(known, row.phase)] if (known := known_in(row.node)) is not None else [])
    named = dict[Known, HotLine | None]()
    for known in dict.fromkeys(known for (known, _), _ in counts.most_common()) if samples.total >= MIN_SAMPLES else ():
        hooks = known.what in (SAVED_HOOKS[0], GRADIENT_HOOKS[0])  # which may write to a disk, and do not compute then
        of = {name: evidence.phases.share_of(name) for name in PASSES} if hooks else computes
        share = sum(part * counts[known, name] / (samples.phases[name] or 1) for name, part in of.items())
        what = known.what
        if what in DIFFERENTIATED and not counts[known, "backward"]:
            what += ", with its part of backward"
            share += computes["backward"] * counts[known, "forward"] / (samples.phases["forward"] or 1)
        if is_sure(evidence, share / (sum(computes.values()) or 1.0)):  # waits for a core shorten both sides
            hot = named[known] = Samples(tuple(row for row in samples.rows if known_in(row.node) == known)).hottest()
            fix = Fix(known.action).by_up_to(1.0 / (1.0 - share)) if hooks else known.action
            yield Against(f"{percent(share)} in {what}", fix, hot)
    native = evidence.native_in(*PASSES)
    # as much as one thread works: the others can do that as well
    a_thread = 1.0 / (evidence.process.intra_op_threads or math.inf)
    for kind, least, does, instead in _BELOW_PYTHON:
        part = native.share(kind) or 0.0
        enough = part >= (a_thread if kind == "pool" else least)
        if enough and is_sure(evidence, part * sum(computes.values())):
            yield Against(f"{percent(part * sum(computes.values()))} in {does}", instead)
    loop, heavy = loop_over_data(evidence.samples.in_steps), _heavy_line(evidence)
    looped = loop.share * evidence.phases.share_of("forward") if loop is not None else 0.0
    functions = {hot.place.code for hot in named.values() if hot is not None}
    is_new = (
        loop is not None and loop.place.code not in functions and has_small_operations(evidence.native_in("forward"))
    )
    if loop is not None and is_new and is_sure(evidence, looped):
        line = at(loop.place)
        once = f"do all turns of the loop at {line} at once, on whole tensors, unless one needs the result of another"
        yield Against(f"{percent(looped)} in small operations of the loop at {line}", once, loop)
    elif heavy is not None and is_sure(evidence, heavy.share):
        less, line = known_of(heavy.place, samples, native=evidence.native_in("forward")), at(heavy.place)
        see = f"see whether {line} has to be computed in each step: keep what depends on neither batch nor weights, and"
        see += " check the shapes of its tensors"
        if less not in named:
            yield Against(f"{percent(heavy.share)} in {line}", less.action if less is not None else see, heavy)
    update, hot = computes["optimizer"], evidence.hottest_in("optimizer")
    if (
        hot is not None
        and update >= MOST
        and multiplies(hot.place.function, hot.place.source)
        and is_sure(evidence, update)
    ):
        yield Against(f"{percent(update)} in the update, above all in products of matrices", _FEWER_PRODUCTS, hot)


def _on_one_thread(evidence: Evidence, share: float) -> Iterator[Against]:
    """Large operations on one thread beside cores that the run does not use. Measured on two cores, a second thread
    gains 1.05x to 1.6x if calls, and room for results, take less than a tenth of the time; if more, less than nothing.
    """
    here, native = evidence.here, evidence.native_in(*PASSES)
    small, taken, free = native.without("kernel").share("python", "memory"), here.cores_taken, here.free_cores
    idle = free if taken is None or taken.idle is None else min(free, taken.idle)
    unused, if_left = (round(cores / max(1, len(here.trainers))) for cores in (idle, free))
    number = 1 + (unused or if_left)
    is_large = small is not None and small < REPORTED and is_sure(evidence, share, MOST)
    if evidence.process.intra_op_threads != 1 or number == 1 or not is_large:
        return
    cores = "on cores that nobody uses" if unused else "once other programs leave them cores"
    how = f"torch.set_num_threads({number}) or OMP_NUM_THREADS={number}"
    if number > 2:  # how far more than two threads help was not measured
        how = f"try torch.set_num_threads(2), then more, up to {number}, as long as steps get shorter"
    if 1 in here.in_environment:
        how += "; OMP_NUM_THREADS is 1 in the environment that it was started with (torchrun sets it)"
    fix = Fix(f"let {'2' if number == 2 else 'several'} threads share each operation, {cores}: {how}")
    most = 1.0 / (1.0 - share * (1.0 - 1.0 / number))
    yield Against("all on one thread", fix.by_up_to(most), next(iter(threads_set_at(here, 1)), None))


def is_in_order(unclaimed: Unclaimed) -> bool:
    """True if no pass contains a notable wait, and every finding is known to gain little."""
    gains = [(each.best.least, each.estimated_speedup or 1.0) for each in unclaimed.found if each.severity != "benign"]
    return wait(unclaimed) is None and all(least is not None and likely < WARNING_GAIN for least, likely in gains)


def times_run(evidence: Evidence, phase: str) -> int:
    """How often a phase runs in a step, at least 1."""
    stats = evidence.stats
    return max(1, round({"backward": stats.backwards, "optimizer": stats.updates}.get(phase, 0) / max(1, stats.total)))


def times_a_step(evidence: Evidence, phase: str) -> str:
    """``backward, 4 times a step``."""
    times = times_run(evidence, phase)
    return f"{phase}, {times} times a step" if times > 1 else phase


def pass_in_words(evidence: Evidence, phase: str) -> str:
    """``forward, run at train.py:40 and train.py:45, 75 % of it in gru_cell() of torch/nn/modules/rnn.py``."""
    words, samples = times_a_step(evidence, phase), evidence.samples.where(phase=phase)
    if phase == "forward" and len(lines := _lines_that_run(samples)) > 1:
        words += f", run at {' and '.join(lines)}"
    if phase == "backward" and evidence.samples.where(phase="forward").part(decomposes) >= LARGE:
        words += ", with the gradients of decompositions of matrices"
    leaves = samples.counted(lambda row: () if row.node.frame.user else (row.node.frame.code,))
    (file, function), count = next(iter(leaves.most_common(1)), (("", ""), 0))
    if samples.total >= MIN_SAMPLES and count >= MOST * samples.total and not _LEADS.fullmatch(function):
        where = plain(file.rpartition("-packages/")[2])
        words += f", {percent(count / samples.total)} of it in {function_text(function)} of {where}"
    return words


def _lines_that_run(samples: Samples) -> list[str]:
    """The lines outside all modules that run one and the same module, each for a large part of the time."""
    within: dict[str, set[tuple[str, int]]] = {}
    lines = Counter[str]()
    for row in samples.where(below="module").rows:
        outside = row.node.before("module")
        inner = next((frame for frame in row.node.frames[len(outside) :] if frame.user), None)
        if outside and outside[-1].user and inner is not None:
            line = code_place(outside[-1])
            within.setdefault(line, set()).add((inner.file, inner.line))
            lines[line] += row.count
    large = [line for line, count in lines.items() if count >= LARGE * lines.total()]
    return sorted(line for line in large if any(within[line] & within[other] for other in large if other != line))


def wait(unclaimed: Unclaimed) -> Finding | None:
    """The longest wait in a pass or an update: time that is not the model's work."""
    waits = [cell for cell in unclaimed.cells.where(phase=PASSES) if cell.doing in WAIT_TIPS and not cell.via]
    longest = max(waits, key=lambda cell: cell.cost.low, default=None)
    if longest is None or not is_sure(unclaimed.evidence, share := longest.cost.low, early=False):
        return None
    headline = (
        f"the training thread {WAIT_TIPS[longest.doing].what} in {longest.phase} for at least {percent(share)} of"
    )
    return _wait_at_line(unclaimed.evidence, longest, share, f"{headline} each step")


def sleep_that_paces(evidence: Evidence, phase: CellPhase) -> Finding | None:
    """What sets the loop's pace and fills a phase apart from waits for a core: a sleep that its author wants, or a wait
    for events from outside.
    """
    found = Cells(cell for cell in of_step(evidence).where(phase={phase}) if "core" not in cell.via)
    paced = found.where(doing={"pace"})
    longest = max(paced, key=lambda cell: cell.share, default=None)
    if longest is None or paced.share < MOST * found.share or not is_sure(evidence, paced.share):
        return None
    waits = "is side work" if phase == "other" else "waits for data"
    sleeps = longest.node is None or longest.node.activity == "sleep"
    how = "is paced by time.sleep() at" if sleeps else "waits for the next event or message at"
    return _wait_at_line(
        evidence, longest, paced.share, f"{percent(paced.share)} of each step {waits}: the loop {how} {{}}"
    )


def _wait_at_line(evidence: Evidence, longest: Cell, share: float, headline: str) -> Finding | None:
    """A finding about a wait, of unknown gain; ``headline``: a template over its line."""
    node = longest.node
    place = node.place if node is not None else None
    if node is None or place is None:
        return None
    tip = WAIT_TIPS.get(node.activity if longest.doing == "pace" else longest.doing, WAIT_TIPS["connection"])
    in_hook = known_in(node) if node.hook is not None else None
    return verdict(
        headline.format(at(place)),
        in_hook.action if in_hook is not None else tip.less.format(at(place)),
        severity="info",
        share=share,
        at=place,
        step_ms=evidence.phases.mean_ms,
    )
