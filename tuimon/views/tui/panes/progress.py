"""How far a run has come, as its own output shows it: a progress bar, the latest loss."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tuimon.views.format import plain

#: tqdm's bar with a known end: ``Epoch 1:  45%|████▌     | 450/1000 [00:30<00:37, 14.8it/s]``.
_BAR = re.compile(
    r"^(?P<what>[^|%]{0,60}?):?\s*\d{1,3}%\|.*?\|\s*(?P<done>\d+)/(?P<all>\d+)\s*"
    r"\[[\d:]+<(?P<left>[\d:]+|\?),\s*(?:\?|[\d.]+)\s*(?:it/s|s/it)"
)
#: ``step 450/1000``, ``iter 450 of 1000``, and the same of epochs.
_COUNT = re.compile(r"\b(?P<what>step|iter|iteration|epoch)s?\b\W{0,3}(?P<done>\d+)\s*(?:/|of)\s*(?P<all>\d+)", re.I)
_LOSS = re.compile(
    r"(?<![\w-])(?:train(?:ing)?[ _/])?loss['\"]?\s*[:=]?\s*(?P<loss>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.%])", re.I
)


class Progress(NamedTuple):
    """As the program has printed it; empty where it has not."""

    place: str = ""  # "step 450 of 1000", "Epoch 1: 450 of 1000, 00:37 left"
    loss: str = ""


def progress_of(rows: Sequence[str]) -> Progress | None:
    """The last bar, or count of steps, and the last loss among rows of output; None where they show neither."""
    place = next(filter(None, map(_place, reversed(rows))), "")
    loss = next((found[-1]["loss"] for row in reversed(rows) if (found := list(_LOSS.finditer(row)))), "")
    return Progress(place, loss) if place or loss else None


def _place(row: str) -> str:
    bar = _BAR.search(row)
    if bar is not None:
        what = plain(bar["what"]).strip()
        left = f", {bar['left']} left" if bar["left"] != "?" else ""
        return f"{what}{': ' * bool(what)}{bar['done']} of {bar['all']}{left}"
    count = _COUNT.search(row)
    return f"{count['what'].lower()} {count['done']} of {count['all']}" if count is not None else ""
