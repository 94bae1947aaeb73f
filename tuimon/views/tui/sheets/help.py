"""The help sheet: all keys by what they are for; behind it every number and every phase in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from tuimon.views.tui.drawing.lines import Line, column, hanging, line, paragraph
from tuimon.views.tui.sheets.sheet import Sheet

_INDENT = 16

#: A term, its role, its explanation.
Entry = tuple[str, str, str]


def _keys(*rows: tuple[str, str]) -> tuple[Entry, ...]:
    return tuple((keys, "key", text) for keys, text in rows)


#: Keys by what they are for.
KEYS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "The verdict",
        _keys(
            ("v", "all findings: place, fixes, why, how sure; Tab chooses one, Enter explains it"),
            ("h", "hot lines of the thread that the verdict blames, or of the one under the cursor"),
            ("c  i", "the same samples as a call tree, as an icicle"),
            ("f  t", "there: only one phase or range; this thread, all like it, its process, the whole run"),
            ("K", "trace the next 5 steps with torch.profiler"),
            ("m", "torch's memory: which lines allocate what nobody frees"),
            ("r", "the ranks, a row each; Enter shows a rank in all panes"),
            ("S", "after a hang: where all ranks stood"),
        ),
    ),
    (
        "Did it help",
        _keys(
            ("b  B", "compare all that comes with what is on the screen now; drop that baseline"),
            ("R", "start the same command again beside the baseline; asks before it ends one that runs"),
            ("e", "export a report (JSON, text) and a screenshot (SVG) into the current folder"),
        ),
    ),
    (
        "The screen",
        _keys(
            ("1 2 3 4 5 6", "hide or show step, GPU, output, threads, verdict, loaders"),
            ("Tab", "next pane; arrows, PageUp and PageDown move in it"),
            ("z  Enter", "the focused pane alone; Esc goes back; Enter on a thread: all about it"),
            ("/", "only threads that contain a text; Esc clears it"),
            ("s  T", "sort threads by role, cpu, delay, where; group them by process"),
            ("D", "in a thread's sheet: a dump of all stacks of its process"),
            ("I", "after attach: bring the hooks into the training"),
            ("space  p", "freeze the screen; measuring goes on"),
            ("d", "dark or light"),
            ("q  Ctrl-C", "quit; a training that was started here can go on or be ended"),
        ),
    ),
)
#: The terms on the screen, by pane.
TERMS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Phases: where the time of a step goes (they add up to 100 %)",
        (
            ("data", "data", "waiting in the DataLoader for the next batch"),
            ("forward", "forward", "from the batch's arrival to backward(): copy to the GPU, model, loss"),
            ("backward", "backward", "inside backward(): gradients"),
            ("optimizer", "optimizer", "inside optimizer.step()"),
            ("other", "other", "the rest of the loop: logging, checkpoints, schedulers, clipping, metrics"),
            ("eval", "eval", "passes without backward (validation); beside the steps, as a share of all time"),
            ("└ name", "dim", "your own ranges (tuimon.phase, NVTX) and what they take of a step"),
        ),
    ),
    (
        "Numbers",
        (
            ("–", "strong", "was not measured; tuimon never shows a 0 instead"),
            ("~", "strong", "an estimate from stack samples; ± is its 95 % interval"),
            ("inferred", "strong", "no markers in the process: phases are read from stack samples alone"),
            (
                "step",
                "strong",
                "median time of one iteration of the training loop in the last 30 s, at the end of the whole run; "
                "p95: 95 % are faster",
            ),
            ("step time", "strong", "the chart: mean step time, one column for each window (1 s by default)"),
            ("cpu", "strong", "CPU time of a thread; 100 % is one core all the time"),
            ("delay", "strong", "share of time a thread was ready to run but found no free core"),
            ("gil", "strong", "share of time a thread held Python's lock (GIL), within a tenth; others had to wait"),
            ("state", "strong", "running on a core, waiting (asleep), disk (waiting for a disk), stopped"),
            ("where", "strong", "the innermost line of your code in the thread's latest stack samples"),
            ("tuimon 2 %", "strong", "tuimon's own cost: CPU (one core = 100 %) and memory, its samplers among them"),
            ("2.1x faster", "strong", "what a fix would gain, as far as the evidence goes"),
        ),
    ),
    (
        "GPU",
        (
            (
                "util",
                "strong",
                "share of time in which any kernel ran on the GPU; not how full the GPU was. Like SM, tensor, DRAM, "
                "power, clock and traffic it is a mean over the steps of the last 30 s, at the end of the whole run; "
                "the charts show the course",
            ),
            ("SM", "strong", "share of its multiprocessors that were busy (Hopper and later)"),
            ("tensor", "strong", "share of time in which the tensor cores worked; low: small or 32-bit matrices"),
            ("DRAM", "strong", "share of the memory's bandwidth in use"),
            ("━ allocated", "gpu-edge", "memory that tensors of torch hold"),
            ("╍ reserved", "gpu-edge", "what torch has taken from the driver: tensors and cache"),
            ("┄ outside", "text", "CUDA itself, other libraries, other processes"),
            ("slowed", "warning", "what holds the clocks down, and for what share of the time"),
            ("J/step", "strong", "energy that the GPUs of this process take for one step"),
            ("foreign", "info", "a process that does not belong to this run"),
            (
                "busy",
                "strong",
                "beside several processes: share of time in which kernels of this one ran, as last read",
            ),
            (
                "GPU span",
                "strong",
                "a phase on the GPU's clock: from when the GPU reaches its beginning to when it reaches its end; "
                "not all of it is work",
            ),
            (
                "idle",
                "strong",
                "how long of that the GPU had nothing to do: at least, and at most; unknown without bounds",
            ),
            (
                "lead",
                "strong",
                "how far launches run ahead of the GPU where backward begins; the bar compares it with a step",
            ),
            ("ran dry", "strong", "how often the GPU had nothing left to do when the CPU reached that boundary"),
        ),
    ),
    (
        "Loaders: torch's DataLoaders, figures of the last 30 s",
        (
            ("ready", "strong", "batches that were ready when the trainer fetched one, out of workers × prefetch"),
            ("none ready", "strong", "share of fetches that found no batch ready: the workers are behind"),
            ("wait", "strong", "how long the trainer waits for a batch; mean and p95"),
            (
                "making",
                "strong",
                "share of a worker's time in items and collate, waits for a disk or a server included",
            ),
            ("CPU", "strong", "of one core, for a worker: far below making, its items wait"),
            ("items", "chart-edge", "time per batch in the data set's __getitem__ or iterator"),
            ("collate", "gpu-edge", "time per batch in collate_fn"),
            ("waiting", "strong", "time per batch spent waiting for the next request: the worker is ahead"),
            ("hand over", "strong", "time per batch until it is pickled and written to the pipe"),
            ("worker 2", "strong", "by torch's number; eval worker 2 evaluates; loader 1 worker 2: of several loaders"),
        ),
    ),
    (
        "Ranks: the processes of one training (estimates; they rest on stack samples and on sleep inside backward)",
        (
            (
                "late",
                "strong",
                "by how much a rank's own work takes longer than the others', who wait for it meanwhile",
            ),
            ("█  ┄", "backward", "a step's phases: what a rank does itself, and how long it waits in collectives"),
            ("wait", "strong", "share of the step that it waits for other ranks: in all_reduce, barrier, backward"),
            ("over time", "warning", "how late it was: the higher and redder, the larger the share of the step"),
            ("state", "strong", "only what is out of order: steps behind the first, silent, stopped, lost, restarted"),
        ),
    ),
    (
        "Verdicts",
        (
            ("critical", "critical", "costs a large part of every step"),
            ("warning", "warning", "costs a noticeable part"),
            ("info", "info", "worth knowing; nothing needs to be done"),
            ("healthy", "benign", "all is as it should be, however it looks"),
        ),
    ),
)


def help_lines(width: int) -> list[Line]:
    """The keys, wrapped to ``width`` cells."""
    return [*_lines(KEYS, width), (), line(("Enter", "key"), ("  what the numbers mean", "dim"))]


def terms_lines(width: int) -> list[Line]:
    """The meaning of everything on the screen, wrapped to ``width`` cells."""
    return _lines(TERMS, width)


def _lines(sections: Sequence[tuple[str, Sequence[Entry]]], width: int) -> list[Line]:
    rows: list[Line] = []
    for title, entries in sections:
        if rows:
            rows.append(())
        rows += paragraph(title, width, "strong")
        for term, role, text in entries:
            rows += hanging(line("  ", (column(term, _INDENT - 2), role)), text, width)
    return rows


class HelpSheet(Sheet):
    """The keys; Enter opens what the numbers mean."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "terms", show=False)]

    def __init__(self) -> None:
        super().__init__("Keys", help_lines)

    def action_terms(self) -> None:
        """Explain every number and phase."""
        self.app.push_screen(Sheet("What the numbers mean", terms_lines))
