"""The words that findings use for a line of code and a share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeVar

from tuimon.code_origin import package_of
from tuimon.diagnosis.evidence.data import Views
from tuimon.interval import Interval
from tuimon.records import Place
from tuimon.session.stacks.activity import outer_call_names
from tuimon.session.stacks.samples import HotLine, Samples
from tuimon.session.stacks.trie import Function, StackNode
from tuimon.session.threads import ThreadRow
from tuimon.text import at, function_text, ms_text, percent, plain, size_text
from tuimon.threshold import MOST, SMALL

K = TypeVar("K")
#: The remedy of a model that runs over all of a sequence for each token that it appends.
KEEP_STATE = (
    "keep the keys and values of the tokens so far, and run the model on the newest one alone: use_cache=True of"
    " transformers, past_key_values"
)
#: Added to fixes, such as larger batches, that change more than the time of a step.
CHANGES_TRAINING = "this changes the training: retune the learning rate"


class WaitTip(NamedTuple):
    """The wait at a line, and how to reduce it: a template over the line."""

    what: str
    less: str


class KnownWork(NamedTuple):
    """A known use of time at a line, as in ``40 % in deep copies``, and the advice."""

    what: str
    action: str
    saves: float = 1.0  # the part of that time that the advice may save


_KEPT_WAITING = "see who keeps {} waiting"
#: By the activity of a thread.
WAIT_TIPS = {
    "sleep": WaitTip("sleeps", "remove or shorten the sleep at {}, unless it limits the pace on purpose"),
    "lock": WaitTip("waits for a lock", f"{_KEPT_WAITING}, and hold the lock only for what needs it"),
    "thread": WaitTip("waits for a queue or a thread", _KEPT_WAITING),
    "message": WaitTip("waits for another process", _KEPT_WAITING),
    "connection": WaitTip("waits for the next event", f"{_KEPT_WAITING}, unless events come at that pace"),
    "io": WaitTip(
        "reads or writes, or waits for another process,", "cache what {} reads, or read and write in a thread"
    ),
    "child": WaitTip("waits for a program that it has started,", "start {} only once, or in the background"),
    "network": WaitTip("calls other machines", "send the requests of {} in batches, or from a thread"),
    "import": WaitTip("imports modules", "import before the loop what is imported at {}"),
}


def most_at(place: Place | None, several: Iterable[Samples], kind: Callable[[StackNode], K | None]) -> K | None:
    """The kind to which most samples at a line belong, of all threads given; None if most have no kind."""
    at_line = Samples.joined(several).where(lambda node: node.place == place)
    kinds = at_line.counted(lambda row: filter(None, (kind(row.node),)))
    return next((each for each, count in kinds.items() if place and count >= MOST * at_line.total), None)


def views_text(views: Views) -> tuple[str, str]:
    """What takes workers so long, and the remedy."""
    batch, whole = size_text(views.batch_bytes), size_text(views.storage_bytes)
    what = f"a worker takes {ms_text(views.sending_ms)} to send a batch of {batch}, of views into {whole}"
    where = f" in {at(views.item)}" if views.item is not None else ""
    return what, f"copy what is returned{where}, with clone() or torch.tensor(array): of a view, torch sends the whole"


def wait_of(place: Place | None, *several: Samples) -> str | None:
    """The wait that most samples at a line show; None if they show it computing."""
    return most_at(place, several, lambda node: node.activity if node.activity in WAIT_TIPS else None)


def callee_at(place: Place | None, several: Iterable[Samples]) -> str | None:
    """``quantile() of numpy``: the package's function that most samples at a line call; None if there is none."""

    def callee(node: StackNode) -> str | None:
        package = package_of(node.called[-1].file) if node.called else None
        return f"{function_text(node.called[-1].function)} of {package}" if package not in (None, "torch") else None

    return most_at(place, several, callee)


def thread_text(thread: ThreadRow) -> str:
    """``thread filler, which takes 98 % of a core``."""
    return f"thread {plain(thread.name)}, which takes {percent(thread.cpu_ratio or 0.0)} of a core"


def at_hot(hot: HotLine) -> str:
    """``step() optim.py:9, called by fit() train.py:31``; only the user's line if no library owns the loop."""
    return at(hot.place) if hot.library is None else f"{at(hot.library)}, called by {at(hot.place)}"


def work_at(hot: HotLine, path: Collection[Function]) -> str:
    """The work that a user can leave out: ``plot() train.py:31``.

    A function on the ``path`` of training cannot be left out, so for it the text names the call on its line, or only
    the line.
    """
    place = hot.place
    if hot.library is not None or hot.place.code not in path:
        return at_hot(hot)
    calls = [] if place.source.startswith("for ") else outer_call_names(place.source)
    return at(Place(place.file, place.line, calls[0] if calls else "<line>"))


def in_library(hot: HotLine | None, known: KnownWork | None = None) -> str:
    """The end of a headline: ``, in step() optim.py:9, above all in deep copies``; ``where`` has the user's line."""
    place = f", in {at(hot.library)}" if hot is not None and hot.library is not None else ""
    return f"{place}, above all in {known.what}" if known is not None else place


def times_a_step(phase: str, times: int) -> str:
    """``backward, 4 times a step``."""
    return f"{phase}, {times} times a step" if times > 1 else phase


def idle_part(idle: Interval) -> str:
    """``72 to 86 %``, ``up to 30 %`` if next to nothing is certain, ``an unknown part`` if the ends say nothing."""
    low, high = percent(idle.low), percent(idle.high)
    if idle.width > MOST:
        return "an unknown part"
    if low == high:
        return high
    return f"up to {high}" if idle.low < min(SMALL, idle.high / 2) else f"{low.removesuffix(' %')} to {high}"
