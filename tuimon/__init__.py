"""tuimon: a terminal monitor for PyTorch training.

In the training loop, where wanted: ``tuimon.phase("name")``, ``tuimon.mark("name")``, ``tuimon.step()``.
"""

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False

if TYPE_CHECKING or "_tuimon_target" not in sys.modules:
    from tuimon.target.api import mark, phase, step
    from tuimon.target.watch import arm

    arm()
else:  # started by ``tuimon run``: the copy it injected has the ring
    from _tuimon_target.api import mark, phase, step  # type: ignore[import-not-found]

__all__ = ["__version__", "mark", "phase", "step"]
