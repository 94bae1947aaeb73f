"""The agent in a training that has long been running: installs the hooks into its torch, and withdraws them.

Iterators, optimizers and models that exist already are covered: the hooks are in what torch looks up at every call. A
forward, backward or step that is under way has no beginning, and is marked from the next boundary on.
"""

import sys
from typing import Any, Dict, List

from . import install, runtime, watch
from .ring import files
from .torch_compat import rebinding

#: The answers of ``install_now``. RETRY: not at this moment; try again in some milliseconds.
INSTALLED, PRESENT, NO_TORCH, NO_RING, RETRY = "installed", "present", "no torch", "no ring", "retry"


def install_now(directories: List[str]) -> Dict[str, Any]:
    """Place the hooks, with a ring in one of these folders; ``status`` is one of those above. From any thread."""
    torch = sys.modules.get("torch")
    rebinding.sweep()
    if runtime.on:
        return {"status": PRESENT}
    if torch is None:
        return {"status": NO_TORCH}
    if watch.is_importing(torch) or rebinding.must_wait():
        return {"status": RETRY}
    files.use_directories(directories)
    watch.instrument(torch)
    if not runtime.on:
        return {"status": NO_RING, "reason": files.own_reason()}
    return {"status": INSTALLED}


def withdraw() -> None:
    """Undo every hook; what is under way goes on as if there had been none."""
    install.uninstall()
    rebinding.sweep()
    files.use_directories([])
