"""Runs first in every Python process under ``tuimon run``: waits for torch, then runs the user's sitecustomize.

Must stay harmless in interpreters that tuimon does not support: this file parses and runs from Python 2.7 on.
"""

import os
import sys


def _leave_path(inject):
    # type: (str) -> None
    """Children find this file through PYTHONPATH; in this process nothing of ours is importable."""
    sys.path[:] = [entry for entry in sys.path if entry != inject]
    sys.path_importer_cache.pop(inject, None)


def _arm(agent):
    # type: (str) -> None
    """Make the agent's folder a package under a private name and have it wait for torch."""
    if sys.version_info < (3, 9) or os.environ.get("TUIMON_MARKERS") == "0":
        return
    package = type(sys)("_tuimon_agent")
    package.__path__ = [agent]
    package.__spec__ = type(__spec__)("_tuimon_agent", None, is_package=True)
    sys.modules["_tuimon_agent"] = package
    import _tuimon_agent.watch  # type: ignore[import-not-found]

    _tuimon_agent.watch.arm()


def _chain():
    # type: () -> None
    """Import the next sitecustomize under the same name. If there is none, or it fails, ``site`` must see that."""
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401


_inject = os.path.dirname(__file__)
_leave_path(_inject)
try:
    _arm(os.path.dirname(os.path.abspath(_inject)))
except Exception:  # the user's process must start, whatever is wrong with us
    pass
_chain()
