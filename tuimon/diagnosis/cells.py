"""Divides the wall time of a run, once: every second is in one cell, and a wait counts at its cause.

Measured times take their part of each phase first; samples divide the rest. Example: a training spends nine tenths of
its steps on making batches in Python, and collects garbage for 77 % of the time. The collector has no frame, so samples
do not show where it ran, but forward is too short to contain all of it::

    >>> step = [Cell("data", "own", 0.9), Cell("forward", "torch", 0.1)]
    >>> for cell in assign_time(step, 0.77, lambda cell: True, "gc"):
    ...     print(f"{cell.phase:8}{cell.doing:6}{cell.share:.2f}, {cell.interval.low:.2f} to {cell.interval.high:.2f}")
    data    own   0.21, 0.13 to 0.23
    forward torch 0.02, 0.00 to 0.10
    data    gc    0.69, 0.67 to 0.77
    forward gc    0.08, 0.00 to 0.10

So making batches faster saves at most 23 % of the time, and running no collector 77 %. Waits for a batch, a rank, a
core or the GIL are assigned to their causes in the same way; ``via`` names the wait. With a GPU a cell costs the time
that the GPU idles during it.

After wPerf (OSDI 2018), which assigns waits to their causes, and Coz (SOSP 2015).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.evidence.data import collate_share
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu import GpuSteps, awaits_gpu
from tuimon.diagnosis.evidence.lines import is_collecting, is_in_own_loop, limits_rate, sets_pace
from tuimon.diagnosis.evidence.process import awaits_queue, works
from tuimon.diagnosis.evidence.ranks import late_rank
from tuimon.interval import NONE, Interval
from tuimon.records import DIVIDED, PASSES, STEP_PHASES
from tuimon.session.series import sampling_error
from tuimon.session.stacks.activity import Activity
from tuimon.session.stacks.samples import NO_SAMPLES, Samples
from tuimon.session.stacks.trie import StackNode
from tuimon.session.state import TimePart, goodput
from tuimon.session.tables import cached_query
from tuimon.threshold import MOST

#: Phases of a step, then those outside the steps.
CellPhase = Literal[
    "data", "forward", "backward", "optimizer", "other", "eval", "set_up", "import", "pause", "stall", "after",
]  # fmt: skip
#: - ``own``: Python, or work that nothing identifies
#: - ``item``, ``collate``, ``draw`` (of indices): making a batch; ``hand_over``: taking one over
#: - ``order``: waiting for the next batch in order
#: - ``start``: waiting for workers that start
#: - ``thread``, ``message``: waiting for a thread, or for a process, that makes the batch
#: - ``batch``: waiting for a batch of which it is unknown how it is made
#: - ``others``: waiting for a core that another program has
#: - ``pace``: a sleep of the loop itself, which makes no data, or a wait for events from outside
Doing = Literal[
    "own", "torch", "item", "collate", "draw", "hand_over", "order", "start", "batch", "copy", "launch", "sync",
    "gc", "compile", "import", "rank", "exchange", "others", "io", "network", "lock", "sleep", "pace", "prompt",
    "thread", "message",
]  # fmt: skip
#: The way to a cause. ``thread``, ``process``: another thread or process of the program, which makes the data of the
#: training thread. ``compile``: the compiler, whose garbage is collected, or which waits for a core.
Via = Literal["batch", "thread", "process", "rank", "core", "gil", "compile"]
Basis = Literal["measured", "sampled", "inferred"]

LOOP: tuple[CellPhase, ...] = (*STEP_PHASES, "eval")
_DOING: dict[Activity, Doing] = {
    "data": "batch",
    "idle": "lock",
    "lock": "lock",
    "thread": "thread",
    "message": "message",
    "child": "io",
    "connection": "message",
    "ranks": "rank",
    "sync": "own",
    "sleep": "sleep",
    "prompt": "prompt",
    "io": "io",
    "network": "network",
    "transfer": "own",
    "torch": "torch",
    "compile": "compile",
    "import": "import",
    "python": "own",
}
#: The entries that differ if the thread launches work for a GPU.
_ON_GPU: dict[Activity, Doing] = {"transfer": "copy", "torch": "launch"}
#: Work of a thread that runs, or is ready to run.
RUNS: frozenset[Doing] = frozenset(
    ("own", "torch", "item", "collate", "draw", "hand_over", "copy", "launch", "compile", "import")
)
_PYTHON: frozenset[Doing] = frozenset(("own", "item", "collate", "draw", "compile"))
#: The time outside the loop, by the parts of the wall time.
_OUTSIDE: dict[TimePart, tuple[CellPhase, Doing]] = {
    "restart": ("set_up", "own"),
    "import": ("import", "import"),
    "set-up": ("set_up", "own"),
    "first batch": ("set_up", "batch"),
    "compile": ("set_up", "compile"),
    "checkpoint": ("pause", "io"),
    "network": ("pause", "network"),
    "program": ("pause", "lock"),
    "prompt": ("pause", "prompt"),
    "outside": ("pause", "own"),
    "evaluation": ("eval", "own"),
    "hang": ("stall", "lock"),
    "training": ("after", "own"),
    "after": ("after", "own"),
}
#: Share of a rank's waits for a core that makes it later than a rank with equally long waits: half if their lengths are
#: random (exponential), none if all waits are equally long, all if they are long and rare.
_COME_LATE = 0.5
#: Cells with less than this share of the time are left out.
_NOTHING = 1e-9


class Cell(Struct, frozen=True):
    """A part of the wall time, all of one kind; shares are of the whole wall time."""

    phase: CellPhase
    doing: Doing
    share: float  # over all cells these add up to 1
    bounds: Interval | None = None  # of ``share``; None: it is exact
    cost: Interval = NONE  # time that a step would save without it: no GPU's work and no other rank hides it
    # (): the training thread's own time; ("batch",): what a worker did while the thread waited for a batch
    via: tuple[Via, ...] = ()
    node: StackNode | None = None  # its place in the call tree of the thread that did it
    basis: Basis = "sampled"

    @property
    def interval(self) -> Interval:
        """The two ends between which ``share`` lies."""
        return self.bounds if self.bounds is not None else Interval(self.share, self.share)


Takes = Callable[[Cell], bool]


class Cells(tuple[Cell, ...]):
    """Cells, with the selections and sums that rules need."""

    __slots__ = ()

    def where(self, phase: Collection[CellPhase] = (), doing: Collection[Doing] = (), via: Via | None = None) -> Cells:
        """The cells that meet every condition given; all cells if none is given."""
        matching = (cell for cell in self if (not phase or cell.phase in phase) and (not doing or cell.doing in doing))
        return Cells(cell for cell in matching if via is None or via in cell.via)

    @property
    def normalized(self) -> Cells:
        """The cells, with shares that add up to 1."""
        return Cells(scaled(self, 1.0 / (self.share or 1.0)))

    @property
    def computing(self) -> Cells:
        """The cells in which the training thread runs a pass of the model, or an update."""
        return Cells(cell for cell in self if computes(cell))

    @property
    def share(self) -> float:
        """Their share of the wall time."""
        return sum((cell.share for cell in self), 0.0)

    @property
    def interval(self) -> Interval:
        """The two ends of that share: the sums of the ends of each cell."""
        return Interval.sum_of(cell.interval for cell in self)

    @property
    def cost(self) -> Interval:
        """The time that would be saved without them, as a share of the wall time."""
        return Interval.sum_of(cell.cost for cell in self)


def computes(cell: Cell) -> bool:
    """True if the training thread runs a pass of the model, or an update, in this cell, and waits for nothing."""
    return cell.phase in PASSES and cell.doing in ("own", "torch") and not cell.via


def step_cells(evidence: Evidence) -> Cells:
    """The cells of the steps alone; shares are of a step."""
    return cells_of(evidence).where(phase=STEP_PHASES).normalized


def loop_cells(evidence: Evidence) -> Cells:
    """The cells of the steps and evaluations; shares are of both together."""
    return cells_of(evidence).where(phase=LOOP).normalized


def gpu_idle_in(evidence: Evidence, takes: Takes) -> Interval:
    """Share of a step in which the GPU idles during the cells of ``takes``.

    It is their cost, but at most the GPU's idle time, and at least the idle time that other cells cannot explain.
    """
    gpu, step = evidence.gpu.steps, step_cells(evidence)
    taken, left = (Cells(cell for cell in step if takes(cell) is taken).cost for taken in (True, False))
    if gpu is None or gpu.contradiction is not None:
        return taken
    return Interval(max(taken.low, gpu.idle.low - left.high), min(taken.high, gpu.idle.high - left.low))


@cached_query
def cells_of(evidence: Evidence) -> Cells:
    """Divides the wall time of the evidence's span: all of it over a whole run, only the loop over the last 30 s."""
    outside, in_loop = _outside_loop(evidence)
    if not evidence.phases:
        return Cells([*outside, Cell("set_up", "own", in_loop, cost=Interval(in_loop, in_loop))])
    evaluated = 1.0 - evidence.phases.part_of_time
    rows = {row.name: row for row in evidence.phases.rows}
    steps = [_of_phase(evidence, name, rows[name].share, rows[name].error) for name in STEP_PHASES if name in rows]
    cells = scaled(Cells(cell for phase in steps for cell in phase).normalized, 1.0 - evaluated)
    cells += _of_phase(evidence, "eval", evaluated, None)
    # garbage collections begin where objects are made: at calls that samples show, else in Python
    unknown = max(0.0, (evidence.collecting or 0.0) - sum(cell.share for cell in cells if cell.doing == "gc"))
    cells = _assign_with_compiler(cells, unknown, "gc", (), _makes_objects, _runs)
    # waits for a core are taken from cells in which the thread runs, then from waits: a woken thread looks the same
    delay = evidence.training.delay_ratio or 0.0
    cells = _by_core_holder(evidence, _assign_with_compiler(cells, delay, "own", ("core",), _runs, _waits))
    for assign_waits in (_waits_for_gil, _waits_for_batches, _waits_for_ranks):
        cells = assign_waits(evidence, cells)
    cells, gpu = [cell for cell in cells if cell.share > _NOTHING], evidence.gpu.steps
    if gpu is not None:
        cells = list(_with_idle_time(evidence, gpu, cells, 1.0 - evaluated))
    else:  # without a GPU, a cell costs the time in which the rank would not wait for others anyway
        waits = sum(cell.share for cell in cells if cell.doing == "exchange" or "rank" in cell.via)
        ends = [(cell, cell.interval.low - waits, cell.interval.high) for cell in cells]
        cells = [replace(cell, cost=Interval(max(0.0, low), high)) for cell, low, high in ends]
    return Cells([*outside, *scaled(cells, in_loop)])


def scaled(cells: Iterable[Cell], factor: float) -> list[Cell]:
    """The cells, each ``factor`` times as long."""
    return [
        replace(
            cell,
            share=factor * cell.share,
            bounds=cell.bounds.times(factor) if cell.bounds is not None else None,
            cost=cell.cost.times(factor),
        )
        for cell in cells
    ]


def _outside_loop(evidence: Evidence) -> tuple[list[Cell], float]:
    """The cells of the time outside the loop, and the share of all time that is in the loop."""
    divided = goodput(evidence.view.session) if evidence.view.is_whole else None
    if divided is None or not divided.loop:
        return [], 1.0
    loop, outside = dict(divided.loop), defaultdict[tuple[CellPhase, Doing], float](float)
    for name, seconds in divided.parts.items():
        outside[_OUTSIDE[name]] += seconds - loop.get(name, 0.0)
    for name in ("restart", "outside", "hang", "first batch"):
        outside[_OUTSIDE[name]] += loop.get(name, 0.0)
    cells = [
        Cell(phase, doing, share, cost=Interval(share, share), basis="measured")
        for (phase, doing), seconds in outside.items()
        if (share := seconds / divided.total_s) > _NOTHING
    ]
    return cells, 1.0 - sum(cell.share for cell in cells)


# -- by samples


def _of_phase(evidence: Evidence, phase: CellPhase, share: float, error: float | None) -> list[Cell]:
    """Divides a phase by the training thread's work in it, and by function."""
    if share <= 0.0:
        return []
    samples = _samples_in(evidence, phase)
    unsure = error or 0.0
    exact = Interval(max(0.0, share - unsure), min(1.0, share + unsure))
    if not samples.total:
        doing: Doing = "batch" if phase == "data" else "torch" if phase in PASSES else "own"
        return [Cell(phase, doing, share, exact, basis="measured")]
    doing_of = _doing_in_data(evidence) if phase == "data" else _doing_of(evidence)
    return _of_samples(Cell(phase, "own", share, exact), samples, doing_of)


def _samples_in(evidence: Evidence, phase: CellPhase) -> Samples:
    """The training thread's samples in a phase; by markers alone, forward begins before a batch is copied."""
    samples = evidence.samples.where(phase=phase)
    is_divided = any(row.estimated for row in evidence.phases.rows)
    if is_divided or phase not in ("data", "forward"):
        return samples
    if phase == "data":
        return samples.where(lambda node: not _is_copied(node))
    return Samples.joined((samples, evidence.samples.where(_is_copied, phase="data")))


def _is_copied(node: StackNode) -> bool:
    return node.activity == "transfer" and not node.has("fetch")


def _of_samples(whole: Cell, samples: Samples, doing_of: Callable[[StackNode], Doing]) -> list[Cell]:
    """Divides a cell by a thread's work in it, and by the user's function, at that function's most frequent stack.

    Without samples the cell stays whole.
    """
    if not samples.total:
        return [whole]
    counts: dict[tuple[Doing, object], Counter[StackNode]] = defaultdict(Counter)
    for row in samples.rows:
        counts[doing_of(row.node), row.node.function][row.node] += row.count
    found = []
    for (doing, _), nodes in counts.items():
        part = nodes.total() / samples.total
        error = sampling_error(part, samples.total)
        between = Interval(max(0.0, part - error) * whole.interval.low, min(1.0, part + error) * whole.interval.high)
        (node, _), *_ = nodes.most_common(1)
        found.append(Cell(whole.phase, doing, part * whole.share, between, via=whole.via, node=node))
    return found


def _doing_of(evidence: Evidence) -> Callable[[StackNode], Doing]:
    """The training thread's work at a stack."""
    draws, paces = evidence.data.draws, sets_pace(evidence.samples)
    sends, loader = evidence.data.data_processes.number > 0, evidence.data.loader
    is_made_here = any(each.part(works) for each in evidence.others.values())  # by another thread
    by_index = loader is not None and loader.facts.kind == "map"
    named = {**_DOING, **_ON_GPU} if evidence.gpu.is_used else _DOING

    def waiting(node: StackNode, at: Doing) -> Doing:
        if at == "prompt" or (at == "sleep" and paces(node)):
            return "pace"
        is_event = node.activity == "connection" or (at == "sleep" and node.frame.polls)
        if is_made_here or not (is_event or at == "message"):
            return at
        if sends:
            return "message"
        if by_index and node.has("fetch"):  # an answer to a request
            return "network"
        return "pace" if is_event else at

    def doing(node: StackNode) -> Doing:
        if is_collecting(node):
            return "gc"
        if evidence.gpu.is_used and awaits_gpu(node):
            return "sync"
        at = named[node.activity]
        if node.has("fetch") and draws(node):
            return "draw"
        if at not in RUNS or not node.has("fetch"):
            return waiting(node, at)
        return "collate" if node.has("collates") else "item"

    return doing


def _doing_in_data(evidence: Evidence) -> Callable[[StackNode], Doing]:
    """The training thread's work at a stack of the data phase; in a fetch it waits for workers if there are any."""
    doing, waits, table = _doing_of(evidence), awaits_queue(evidence.samples), evidence.phases
    is_marked = bool(table) and not (table.inferred or any(row.estimated for row in table.rows))

    def doing_in_data(node: StackNode) -> Doing:
        at, in_fetch = doing(node), is_marked or node.has("fetch")
        if in_fetch and evidence.data.workers.number and at not in ("gc", "draw", "sync", "copy"):
            return "hand_over" if at in RUNS and node.frame.kind != "fetch" else "batch"
        return "thread" if at != "message" and not in_fetch and waits(node) else at

    return doing_in_data


def _doing_of_maker(node: StackNode) -> Doing:
    """The work of another thread or process that makes the data; ``pace`` if it sleeps to limit its rate."""
    doing = _doing_of_worker(node)
    return "pace" if doing == "sleep" and (limits_rate(node) or is_in_own_loop(node)) else doing


def _doing_of_worker(node: StackNode) -> Doing:
    at = _DOING[node.activity]
    return at if at not in RUNS else "collate" if node.has("collates") else "item"


# -- measured times


def assign_time(
    cells: Iterable[Cell],
    amount: float,
    takes: Takes,
    doing: Doing,
    via: tuple[Via, ...] = (),
    node: StackNode | None = None,
) -> list[Cell]:
    """Moves ``amount``, which was measured as a whole, out of the cells that ``takes`` selects, into new cells.

    Each cell gives in proportion to its length: at most all of it, and at least the part that the others cannot
    contain. There is one new cell for each phase.
    """
    cells = list(cells)
    room = sum(cell.share for cell in cells if takes(cell))
    amount = min(amount, room)
    if amount <= _NOTHING:
        return cells
    left, taken = [], defaultdict[CellPhase, float](float)
    for cell in cells:
        if not takes(cell):
            left.append(cell)
            continue
        taken[cell.phase] += cell.share
        low, high = _taken(amount, cell.share, room)
        between = Interval(max(0.0, cell.interval.low - high), max(0.0, cell.interval.high - low))
        left.append(replace(cell, share=cell.share * (1.0 - amount / room), bounds=between))
    for phase, share in taken.items():
        bounds = _taken(amount, share, room)
        left.append(Cell(phase, doing, amount * share / room, bounds, via=via, node=node, basis="measured"))
    return left


def _assign_with_compiler(
    cells: list[Cell], amount: float, doing: Doing, via: tuple[Via, ...], *may_hold: Takes
) -> list[Cell]:
    """Like ``assign_time``, from several kinds of cells in turn; time taken from the compiler's is ``via`` it."""
    for takes in may_hold:
        found = [cell for cell in cells if takes(cell)]
        compiling = [cell for cell in found if cell.doing == "compile"]
        room = Cells(found).share
        laid = min(amount, room)
        there = laid * Cells(compiling).share / (room or 1.0)
        cells = assign_time(cells, there, set(compiling).__contains__, doing, ("compile", *via))
        cells = assign_time(cells, laid - there, set(found).difference(compiling).__contains__, doing, via)
        amount -= laid
    return cells


def _taken(amount: float, share: float, room: float) -> Interval:
    most = min(amount, share)
    return Interval(min(most, max(0.0, amount - (room - share))), most)


def _waits_for_gil(evidence: Evidence, cells: list[Cell]) -> list[Cell]:
    held = evidence.contention
    if held is None:
        return cells
    node = _most_frequent(evidence.others.get(held.culprit.tid, NO_SAMPLES))
    queued, in_data = (sum(cell.share for cell in cells if takes(cell)) for takes in (_awaits_thread, _is_data))
    queued = queued if queued >= MOST * in_data else 0.0
    if held.share <= queued:  # both are the work of one thread: the longer of the two waits for it decides what it is
        return assign_time(cells, held.share, _runs, "own", ("batch", "gil"), node)
    cells = assign_time(cells, held.share, _runs, "own", ("gil",), node)
    return assign_time(cells, queued, _awaits_thread, "own", ("batch", "gil"), node)


def _waits_for_batches(evidence: Evidence, cells: list[Cell]) -> list[Cell]:
    """Divides waits for a batch: starting workers, the next batch in order, the hand-over, the makers' work."""
    in_data = sum(cell.share for cell in cells if cell.phase == "data")
    if evidence.data.epoch_starts is not None:
        starting = evidence.data.epoch_starts * in_data
        cells = assign_time(cells, starting, _is_data, "start")
    workers, loader = evidence.data.workers, evidence.data.loader
    if loader is not None and loader.wait_ms and evidence.data.is_held_back:
        held = (loader.held_ms or 0.0) / loader.wait_ms * in_data
        cells = assign_time(cells, held, _awaits_batch, "order", ("batch",))
    found: list[Cell] = []
    awaits = Cells(cells).where(phase={"data"}, doing={"thread", "message"})
    for cell in cells:
        if cell in awaits:
            found += _by_another(evidence, cell, awaits.share)
        elif not workers.number or not _awaits_batch(cell):
            found.append(cell)
        elif evidence.data.has_ready_batches:
            found.append(_part(cell, 1.0, "hand_over"))
        else:
            found += _by_workers(evidence, cell)
    return found


def _by_another(evidence: Evidence, wait: Cell, awaited: float) -> list[Cell]:
    """Divides a wait for data from other threads or processes by their work.

    The rest is a wait for messages. ``awaited``: the share of all such waits.
    """
    others = Samples.joined(evidence.others.values())
    threads = others.where(works)
    processes, pool = evidence.data.data_processes, evidence.data.pool
    uses_more = processes.number * (processes.cpu_ratio or 0.0) > (pool.cpu_ratio if pool is not None else 0.0)
    if evidence.data.pickling_share < MOST and (uses_more or (wait.doing == "message" and processes.number)):
        made = min(1.0, processes.part / awaited)
        making = _of_samples(_part(wait, made, "batch", "process"), processes.making, _doing_of_maker)
        return [*making, _part(wait, 1.0 - made, "message", "process")]
    if threads.total:
        return _of_samples(_part(wait, 1.0, "batch", "thread"), threads, _doing_of_maker)
    # a thread that is only ever seen to wait, in user code or for messages, passes on what comes from outside
    passes_on = others.part(lambda node: node.place is not None or node.activity in ("message", "connection"))
    return [replace(wait, doing="pace" if wait.doing == "message" or passes_on else "lock")]


def _by_workers(evidence: Evidence, wait: Cell) -> list[Cell]:
    """Divides a wait for a batch by the workers' work: measured waits for core and disk first, the rest by samples."""
    workers = evidence.data.workers
    making = workers.samples.where(lambda node: node.activity != "idle")
    ran, cpu = workers.ran_ratio, workers.cpu_ratio
    for_core = max(0.0, ran - cpu) / ran if ran and cpu is not None else 0.0
    on_disk = min(1.0 - for_core, workers.disk_ratio)
    found = _by_core_holder(evidence, [_part(wait, for_core, "own", "batch", "core")])
    found.append(_part(wait, on_disk, "io", "batch"))
    rest = _part(wait, 1.0 - for_core - on_disk, "batch", "batch")
    collated = collate_share(evidence.data.loader, [making])
    if collated is None:
        return [*found, rest]
    collating, of_items = making.where(below="collates"), making.where(lambda node: not node.has("collates"))
    found += _of_samples(_part(rest, collated, "collate"), collating, _doing_of_worker)
    return [*found, *_of_samples(_part(rest, 1.0 - collated, "item"), of_items, _doing_of_worker)]


def _waits_for_ranks(evidence: Evidence, cells: list[Cell]) -> list[Cell]:
    """Divides waits for other ranks: the latest rank's longer work, waits of ranks for a core; the rest is exchange."""
    rows = evidence.ranks
    own: Mapping[str, float] = next((row.waits for row in rows if row.pid == evidence.pid), {})
    in_steps = sum(cell.share for cell in cells if cell.phase in STEP_PHASES)
    for phase in STEP_PHASES if rows else ():
        shown = sum(cell.share for cell in cells if cell.phase == phase and cell.doing == "rank")
        waits = own.get(phase, 0.0) * in_steps - shown
        beside = {cell for cell in cells if cell.phase == phase and cell.doing != "rank" and not cell.via}
        cells = assign_time(cells, waits, beside.__contains__, "rank")
    total = sum(cell.share for cell in cells if cell.doing == "rank")
    late, found = late_rank(rows), [cell for cell in cells if cell.doing != "rank"]
    late_part, node = 0.0, None
    if late is not None and late.row.pid != evidence.pid and total and (other := evidence.of_rank(late.row.pid)):
        late_part = min(1.0, (late.row.late_ratio or 0.0) * in_steps / total)
        node = _most_frequent(other.samples.where(phase=late.phase))
    delays = [row.thread.delay_ratio or 0.0 for row in rows if row.pid != evidence.pid]
    for_core = min(1.0 - late_part, _COME_LATE * max(delays, default=0.0) * in_steps / total) if total else 0.0
    for cell in cells:
        if cell.doing == "rank":
            done = _doing_of(evidence)(node) if node is not None else "own"
            found.append(replace(_part(cell, late_part, done, "rank"), node=node))
            found += _by_core_holder(evidence, [_part(cell, for_core, "own", "rank", "core")])
            found.append(_part(cell, 1.0 - late_part - for_core, "exchange"))
    return found


def _own(*doing: Doing) -> Takes:
    """Selects the training thread's own time (``via`` nothing) spent on any of these."""
    return lambda cell: not cell.via and cell.doing in doing


_runs, _makes_objects, _awaits_batch = _own(*RUNS), _own(*_PYTHON), _own("batch")


def _waits(cell: Cell) -> bool:
    return not cell.via and cell.doing not in RUNS and cell.doing != "gc"


def _is_data(cell: Cell) -> bool:
    return cell.phase == "data" and not cell.via


def _awaits_thread(cell: Cell) -> bool:
    return _is_data(cell) and cell.doing == "thread"


def _part(cell: Cell, share: float, doing: Doing, *via: Via) -> Cell:
    """This share (0..1) of a wait, assigned to what another thread does during it."""
    bounds = cell.interval.times(share)
    return replace(cell, doing=doing, share=share * cell.share, bounds=bounds, via=(*cell.via, *via), basis="inferred")


def _by_core_holder(evidence: Evidence, cells: Iterable[Cell]) -> list[Cell]:
    """Divides waits for a core by who has it: other programs, or another thread of the run."""
    outside = evidence.machine.waits_from_outside.part
    found: list[Cell] = []
    for cell in cells:
        is_wait = cell.via[-1:] == ("core",)
        found += [_part(cell, outside, "others"), _part(cell, 1.0 - outside, "own")] if is_wait else [cell]
    return found


def _most_frequent(samples: Samples) -> StackNode | None:
    return max(samples.rows, key=lambda row: row.count).node if samples.rows else None


# -- the cost


def _with_idle_time(evidence: Evidence, gpu: GpuSteps, cells: Sequence[Cell], in_steps: float) -> Iterator[Cell]:
    """Assigns the GPU's idle time to what the CPU does during it.

    While the GPU is in a phase and has nothing to do, the CPU is in that phase too: it has passed its beginning, and
    has yet to launch the next work. It does not wait for the GPU then. So the idle time of each phase is assigned to
    its other calls, in proportion to their time.
    """
    estimated = {row.name for row in evidence.phases.rows if row.estimated}
    divided = tuple(name for name in STEP_PHASES if name == "forward" or (name in DIVIDED and name in estimated))
    for group in (divided, *((name,) for name in STEP_PHASES if name not in divided)):
        own = [cell for cell in cells if cell.phase in group]
        idle = gpu.idle_in(*group).times(in_steps)
        weights = [cell.share if cell.doing != "sync" else 0.0 for cell in own]
        if not any(weights):
            weights = [cell.share for cell in own]
        total = sum(weights)
        if not total:
            yield Cell(group[0], "launch", 0.0, cost=idle, basis="inferred")
        for cell, weight in zip(own, weights, strict=True):
            yield replace(cell, cost=idle.times(weight / total))
    yield from (replace(cell, cost=cell.interval) for cell in cells if cell.phase not in STEP_PHASES)
