"""Our functions that stand between the program and torch: a ``stacklevel`` does not count their frames.

warnings, and logging from Python 3.11 on, skip the frames of Python's import system, which they recognise by two words
in the names of its files: ``importlib`` and ``_bootstrap`` (``warnings._is_internal_frame``). Hence the name.
"""

from typing import Any, Callable

from ..outside import hide_frame


def watched_exec(loader: Any, name: str, original: Callable[[Any], None], imported: Callable[[Any], None]) -> Any:
    """``exec_module`` of a loader: ``imported(module)`` is called once the module of this name has run."""

    def exec_module(module: Any) -> None:
        if module.__name__ != name:  # one loader may serve a whole archive
            original(module)
            return
        loader.__dict__.pop("exec_module", None)
        try:
            original(module)
        except BaseException as error:
            hide_frame(error)
            raise
        imported(module)

    return exec_module
