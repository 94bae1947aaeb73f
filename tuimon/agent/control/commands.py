"""The commands that this agent knows: each is a module of this folder, imported on first use."""

import importlib
from typing import Any, Dict, Tuple

from ..outside import raised_by_us
from ..ring.control_words import Command

_MODULES: Dict[int, str] = {
    Command.SAMPLE: "sample",
    Command.MEMORY: "memory",
    Command.TRACE: "trace",
    Command.WITHDRAW: "withdraw",
    Command.HOLD: "hold",
}

#: The numbers of all commands that are known, and the same as bits.
KNOWN: Tuple[int, ...] = tuple(_MODULES)
KNOWN_BITS = sum(1 << number for number in KNOWN)


def module_of(command: int) -> Any:
    """The module of a known command."""
    return importlib.import_module("." + _MODULES[command], __package__)


def watch_memory() -> None:
    """Watch for out-of-memory errors; enabled by the environment, not by an order."""
    try:
        importlib.import_module(".oom", __package__).watch()
    except raised_by_us(Exception):  # a torch with other names for it
        return
