"""How the classes of activity are named and coloured."""

from __future__ import annotations

from tuimon.session.samples.activity import Activity
from tuimon.views.tui.drawing.lines import Span

#: activity -> (word, role, what it means).
ACTIVITIES: dict[Activity, tuple[str, str, str]] = {
    "data": ("waits for data", "data", "in the DataLoader's queue: the workers are behind"),
    "lock": ("waits for lock", "warning", "for a lock, a queue or a thread"),
    "ranks": ("waits for ranks", "warning", "in a collective: other ranks are behind, or the network is"),
    "sync": ("GPU sync", "critical", "until the GPU has done all it was given: .item(), .cpu(), synchronize()"),
    "transfer": ("transfer", "warning", "copying between host and GPU"),
    "torch": ("launching", "forward", "calling torch: giving the GPU work"),
    "compile": ("compiling", "info", "torch.compile and its compilers"),
    "import": ("importing", "info", "loading Python modules"),
    "io": ("I/O", "warning", "reading or writing a file, a socket, a pipe"),
    "sleep": ("sleeps", "dim", "time.sleep()"),
    "idle": ("idle", "faint", "a helper with nothing to do: it waits for work"),
    "python": ("Python", "text", "running Python code and what that calls"),
}
#: Without a GPU, torch does the work where it is called.
_ON_CPU = ("torch", "sync", "transfer")


def activity_span(activity: Activity, *, on_gpu: bool) -> Span:
    """The word for an activity, in its colour; ``on_gpu``: whether this run uses one."""
    if not on_gpu and activity in _ON_CPU:
        return Span("torch", "forward")
    word, role, _ = ACTIVITIES[activity]
    return Span(word, role)
