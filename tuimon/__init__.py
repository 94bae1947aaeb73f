"""tuimon: a terminal monitor for PyTorch training.

In the training loop, if wanted: ``tuimon.phase("name")``, ``tuimon.mark("name")``, ``tuimon.step()``.
Elsewhere: ``tuimon.read_log("run.jsonl")``, the records of a log.
"""

import sys

__version__ = "0.1.0.dev0"

TYPE_CHECKING = False

if TYPE_CHECKING or "_tuimon_agent" not in sys.modules:
    from tuimon.agent.api import mark, phase, step
    from tuimon.agent.watch import arm

    arm()
else:  # started by ``tuimon run``: the copy it injected has the ring
    from _tuimon_agent.api import mark, phase, step  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from tuimon.recorded import read_log as read_log

__all__ = ["__version__", "mark", "phase", "step"]  # not read_log: a star import in a training would load it


def __getattr__(name: str) -> object:
    """``read_log``, loaded on first use: trainings import tuimon too."""
    if name == "read_log":
        from tuimon.recorded import read_log  # noqa: PLC0415

        return read_log
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
