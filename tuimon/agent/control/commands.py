"""The commands that this agent knows: each is a module of this folder, imported on first use."""

import importlib
import sys
from typing import Any, Dict, Tuple

from ..outside import raised_by_us, undisturbed
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
    return _imported(_MODULES[command])


def watch_memory() -> None:
    """Watch for out-of-memory errors; enabled by the environment, not by an order."""
    try:
        _imported("oom").watch()
    except raised_by_us(Exception):  # a torch with other names for it
        return


def _imported(name: str) -> Any:
    full = "%s.%s" % (__package__, name)
    if full not in sys.modules:
        undisturbed(lambda: importlib.import_module(full))
    return importlib.import_module(full)
