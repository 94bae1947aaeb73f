"""The help sheet: the terms of the focused pane, and all keys; behind it every number and phase in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType

from tuimon.records import PHASES
from tuimon.views.tui.drawing.lines import Line, apart, column, hanging, line, paragraph
from tuimon.views.tui.sheets.sheet import Sheet

_INDENT = 16
#: A line that begins with a bar continues the explanation above it.
_GOES_ON = re.compile(r"\n +\| ")

#: Keys by purpose.
KEYS = """\
The verdict
  v    | all findings: place, fixes, why, how sure; Tab chooses one, Enter explains it
  h    | hot lines of the thread that the verdict blames, or of the one under the cursor
  c    | the same samples as a call tree
  o    | open the line of the verdict, or of the finding chosen in v, in $EDITOR; the training goes on
  y    | copy the same finding as Markdown: verdict, place, fix
  f  t | in h and c, choose the samples: f by phase or range; t by thread, kind of thread, process or run
  K    | trace the next 5 steps with torch.profiler
  m    | torch's memory: which lines allocate memory that is not freed
  r    | the ranks, a row each; Enter shows a rank in all panes
  S    | the stacks of all ranks, taken once nothing has moved for 15 s and ten times a step

The report
  e    | export a report (JSON, text) and a screenshot (SVG) into the current folder

The screen
  1 2 3 4 5 6 | hide or show step, GPU, output, threads, verdict, loaders; one without room is shown alone
  Tab         | next pane; arrows, PageUp and PageDown move in it
  z  Enter    | the focused pane alone; Esc goes back; Enter shows a thread in full
  /           | only threads that contain a text; Esc clears it
  s           | sort threads by role, cpu, delay, where
  I           | after attach: bring the hooks into the training
  space  p    | freeze the screen; measuring goes on
  d           | dark or light
  q  Ctrl-C   | quit; a training that was started here can go on or be ended
"""
#: The terms on the screen, by pane.
TERMS = """\
Step: where its time goes (the phases add up to 100 %)
  data      | waiting in the DataLoader for the next batch
  forward   | from the batch's arrival to backward(): copy to the GPU, model, loss
  backward  | inside backward(): gradients
  optimizer | inside optimizer.step()
  other     | the rest of the loop: logging, checkpoints, schedulers, clipping, metrics
  eval      | passes without backward (validation); outside the steps, as a share of the loop's time
  └ name    | your own ranges (tuimon.phase, NVTX) and what they take of a step
  mean      | time of one iteration of the training loop in the last 30 s, or in the whole run once it has ended;
            | its phases add up to it. median: half of the steps are faster, p95: 95 % are. A median far below the
            | mean: a few steps are long
  step time | the chart: mean step time, one column for each window (1 s by default)
  CPU       | a phase on the CPU's clock: from when the loop reaches its beginning to when it reaches its end
  GPU span  | the same on the GPU's clock, which runs later; not all of it is work
  GPU idle  | how long the GPU had nothing to do in it, or in all steps, at least and at most; and who waits: launches
            | run ahead (the GPU limits the step), it waits for the CPU, or the CPU waits for it
  timed     | in fast loops not each step is timed, so that tuimon stays cheap; all are counted

Everywhere
  –           | not measured; tuimon never shows a 0 instead
  ~           | an estimate from stack samples; ± is its 95 % interval
  inferred    | no markers in the process: phases are read from stack samples alone
  window      | the time that one record covers: 1 s by default, up to 10 s where little changes
  tuimon 2 %  | tuimon's own cost: CPU (one core = 100 %) and memory, its samplers among them
  2.1x faster | what a fix would gain, as far as the evidence goes

CPU threads
  cpu   | CPU time of a thread; 100 % is one core all the time
  delay | share of time a thread was ready to run but found no free core
  gil   | share of time a thread held Python's lock (GIL), within a tenth; others had to wait
  state | running on a core, waiting (asleep), disk (waiting for a disk), stopped
  runs  | what it runs below Python: libraries by their share of its CPU time
  where | the innermost line of your code in the thread's latest stack samples

GPU
  util        | share of time in which any kernel ran on the GPU; not how full the GPU was. Like SM, tensor, DRAM,
              | power, clock and traffic it is a mean over the steps of the last 30 s, or of the whole run once it has
              | ended; the charts show how it changed
  SM          | share of its multiprocessors that were busy (Hopper and later)
  tensor      | share of time in which the tensor cores worked; low: small or 32-bit matrices
  DRAM        | share of the memory's bandwidth in use
  ━ allocated | memory that tensors of torch hold
  ╍ reserved  | what torch has taken from the driver: tensors and cache
  ┄ outside   | CUDA itself, other libraries, other processes
  peak        | most in tensors at a time: what optimizers hold, and the rest: activations, buffers, frozen weights
  batch ~2x   | how much larger a batch fits in the GPU's memory if all of that rest grows with it
  slowed      | what holds the clocks down, and for what share of the time
  J/step      | energy that the GPUs of this process take for one step
  foreign     | a process that does not belong to this run
  busy        | with several processes: share of time in which kernels of this one ran, as last read

Loaders: torch's DataLoaders, figures of the last 30 s
  ready      | batches that were ready when the trainer fetched one, out of workers × prefetch
  none ready | share of fetches that found no batch ready: the workers are behind
  wait       | how long the trainer waits for a batch; mean and p95
  making     | share of a worker's time in items and collate, waits for a disk or a server included
  CPU        | share of one core that a worker uses; if far below making, its items wait
  items      | time per batch in the dataset's __getitem__ or iterator
  collate    | time per batch in collate_fn
  waiting    | time per batch spent waiting for the next request: the worker is ahead
  hand over  | time per batch until it is pickled and written to the pipe
  worker 2   | torch's number of the worker; eval worker 2 evaluates; loader 1 worker 2 is one of several loaders'

Ranks: the processes of one training (estimates; they rest on stack samples and on sleep inside backward)
  late      | by how much a rank's own work takes longer than the others', who wait for it meanwhile
  █  ░      | a step's phases: what a rank does itself, and how long it waits in collectives
  wait      | share of the step that a rank waits for others, or exchanges with them: in all_reduce, barrier, backward.
            | A verdict counts the part that it explains: the longer work of a late rank, or the shortest wait of all
  over time | how late a rank was: the higher and redder, the larger the share of the step
  state     | only what is out of order: steps behind the first, silent, stopped, lost, restarted

Verdicts
  critical | red: a fix gains at least 20 %, or the run is in danger: it hangs, memory runs out, a GPU fails
  warning  | yellow: a fix gains at least 5 %, or a fault may cost more later
  info     | blue: worth knowing; nothing needs to be done
  healthy  | green: all is as it should be, however it looks
  probably | dim: the first verdict, until it has held for 5 s
"""
#: Panes -> the beginning of their part of the terms.
_PARTS = {
    **{"step": "Step:", "gpu": "GPU", "threads": "CPU threads", "verdict": "Verdicts"},
    **{"loaders": "Loaders:", "ranks": "Ranks:", "profile": "CPU threads"},
}
#: Roles of terms, as on the screen; the others are bright.
ROLES = {
    **{name: name for name in (*PHASES, "critical", "warning", "info")},
    "└ name": "dim",
    "━ allocated": "gpu-edge",
    "╍ reserved": "gpu-edge",
    "┄ outside": "text",
    "slowed": "warning",
    "foreign": "info",
    "items": "chart-edge",
    "collate": "gpu-edge",
    "█  ░": "backward",
    "over time": "warning",
    "healthy": "benign",
}


def help_lines(width: int, pane: str | None = None) -> list[Line]:
    """The terms of a pane, then the keys, wrapped to ``width`` cells."""
    parts = [part for part in TERMS.split("\n\n") if pane in _PARTS and part.startswith(_PARTS[pane])]
    more = line(("Enter", "key"), ("  what all numbers mean", "dim"))
    return apart([*(terms_lines(width, part) for part in parts), _lines(KEYS, width, lambda _: "key"), [more]])


def terms_lines(width: int, terms: str = TERMS) -> list[Line]:
    """The meaning of everything on the screen, wrapped to ``width`` cells."""
    return _lines(terms, width, lambda term: ROLES.get(term, "strong"))


def _lines(text: str, width: int, role_of: Callable[[str], str]) -> list[Line]:
    rows: list[Line] = []
    for entry in _GOES_ON.sub(" ", text).splitlines():
        term, bar, words = (part.strip() for part in entry.partition(" | "))
        if bar:
            rows += hanging(line("  ", (column(term, _INDENT - 2), role_of(term))), words, width)
        else:
            rows += paragraph(entry, width, "strong") or [()]
    return rows


class HelpSheet(Sheet):
    """The terms of the focused pane, and the keys; Enter opens the meaning of all numbers."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "terms", show=False)]

    def __init__(self, pane: str | None) -> None:
        super().__init__("Help", partial(help_lines, pane=pane))

    def action_terms(self) -> None:
        """Explain every number and phase."""
        self.app.push_screen(Sheet("What the numbers mean", terms_lines))
