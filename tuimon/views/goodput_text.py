"""Goodput in words and for programs."""

from __future__ import annotations

from typing import Any

from tuimon.session.goodput import PARTS, Goodput, Part
from tuimon.views.format import duration, percent

#: Parts of a smaller share are left out of the line.
_SHOWN = 0.005
_NAMES: dict[Part, str] = {
    "network": "calls over the network",
    "program": "waiting for other programs",
    "prompt": "at a prompt",
    "outside": "outside the loop or stopped",
    "after": "after the last step",
}

#: One part each; the other parts are grey.
_COLOURS: dict[Part, str] = {
    "training": "forward",
    "compile": "backward",
    "evaluation": "eval",
    "checkpoint": "optimizer",
    "hang": "data",
}


def goodput_text(goodput: Goodput) -> str:
    """``62 % of 3m12s in steps; evaluation 21 %, set-up 12 %, import 5 %``."""
    rest = sorted(((seconds, part) for part, seconds in goodput.parts.items() if part != "training"), reverse=True)
    named = [
        f"{_NAMES.get(part, part)} {percent(seconds / goodput.total_s)}"
        for seconds, part in rest
        if seconds >= _SHOWN * goodput.total_s
    ]
    return f"{percent(goodput.ratio)} of {duration(goodput.total_s)} in steps" + (
        "; " + ", ".join(named) if named else ""
    )


def goodput_bar(goodput: Goodput) -> list[tuple[str, float, str]]:
    """The parts in order for a stacked bar: name, share, and the phase in whose colour it is drawn."""
    parts = ((part, goodput.parts[part] / goodput.total_s) for part in PARTS if part in goodput.parts)
    return [(_NAMES.get(part, part), share, _COLOURS.get(part, "other")) for part, share in parts]


def goodput_json(goodput: Goodput) -> dict[str, Any]:
    """For ``report --format json``: the parts in order, and the same in words."""
    return {
        "seconds": round(goodput.total_s, 3),
        "parts": [
            {
                "name": part,
                "seconds": round(goodput.parts[part], 3),
                "share": round(goodput.parts[part] / goodput.total_s, 4),
            }
            for part in PARTS
            if part in goodput.parts
        ],
        "text": goodput_text(goodput),
    }
