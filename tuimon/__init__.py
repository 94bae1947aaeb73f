"""tuimon: a terminal monitor for PyTorch training.

In the training loop, where wanted: ``tuimon.phase("name")``, ``tuimon.mark("name")``, ``tuimon.step()``.
"""

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False

if TYPE_CHECKING or "_tuimon_agent" not in sys.modules:
    from tuimon.agent.api import mark, phase, step
    from tuimon.agent.watch import arm

    arm()
else:  # started by ``tuimon run``: the copy it injected has the ring
    from _tuimon_agent.api import mark, phase, step  # type: ignore[import-not-found]

__all__ = ["__version__", "mark", "phase", "step"]
