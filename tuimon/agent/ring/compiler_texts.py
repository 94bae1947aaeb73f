"""The names of markers of torch.compile's work: an event as one text, and back."""

from typing import NamedTuple, Optional, Tuple

from .layout import PLACE_SEPARATOR

#: Kinds of events; COMPILED, RECOMPILED and BACKWARD have a time, the others a count.
COMPILED, RECOMPILED, BACKWARD = "compiled", "recompiled", "backward"
GRAPH_BREAK, LIMIT, NO_CUDA_GRAPHS = "graph_break", "limit", "no_cuda_graphs"

Code = Tuple[str, int, str]
NO_CODE: Code = ("", 0, "")

_CHARACTERS = 160


class Event(NamedTuple):
    """An event; ``code``: file, line and function, of the first line of what was compiled, or of the break."""

    what: str
    value: int  # ns, or how many
    code: Code
    reason: str = ""
    guarded: str = ""  # the line that the failed guard is for


def packed(what: str, code: Code, reason: Tuple[str, str]) -> str:
    """As one string, of bounded length."""
    file, line, function = code
    parts = [what, file[-2 * _CHARACTERS :], str(line), *(each[:_CHARACTERS] for each in (function, *reason))]
    return PLACE_SEPARATOR.join(part.replace(PLACE_SEPARATOR, "?") for part in parts)


def unpacked(text: str) -> Optional[Event]:
    """The event of a marker's name, without its value; None where it is damaged."""
    parts = text.split(PLACE_SEPARATOR)
    if len(parts) != 6 or not parts[2].isdecimal():
        return None
    return Event(parts[0], 0, (parts[1], int(parts[2]), parts[3]), parts[4], parts[5])
