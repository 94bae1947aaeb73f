"""Settings meant for debugging that slow every step down, and are easily left on."""

import sys
from typing import Any, Callable, Dict, List, Optional

from .outside import variable as own_variable


def facts() -> Dict[str, Any]:
    """``{"debug_settings": [name, ...]}``, of the settings in force; empty if there are none."""
    is_anomaly_enabled = getattr(sys.modules.get("torch"), "is_anomaly_enabled", None)
    is_tracing = getattr(sys.modules.get("tracemalloc"), "is_tracing", None)
    settings = ["anomaly_detection"] if is_anomaly_enabled is not None and is_anomaly_enabled() else []
    settings += ["tracemalloc"] if is_tracing is not None and is_tracing() else []
    settings += of_environment(own_variable)
    return {"debug_settings": settings} if settings else {}


def of_environment(variable: Callable[[str], Optional[str]]) -> List[str]:
    """The settings that environment variables turn on; ``variable`` reads a variable."""
    settings = ["launch_blocking"] if variable("CUDA_LAUNCH_BLOCKING") == "1" else []
    settings += ["tracemalloc"] if (variable("PYTHONTRACEMALLOC") or "0") != "0" else []
    return settings + (["distributed_debug"] if (variable("TORCH_DISTRIBUTED_DEBUG") or "").upper() == "DETAIL" else [])


def tracer() -> Optional[str]:
    """The package whose profiler, debugger or coverage tool traces this thread; None if there is none.

    Our own profile function, which counts the calls of two steps, does not count (``control/calls.py``).
    """
    for seeing in (sys.gettrace(), sys.getprofile()):
        if seeing is not None:
            module = str(getattr(seeing, "__module__", None) or type(seeing).__module__)
            if module.partition(".")[0] != __name__.partition(".")[0]:
                return _package(module)
    monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.12 and later
    names = [monitoring.get_tool(number) for number in range(_TOOLS)] if monitoring is not None else []
    return next((_package(str(name)) for name in names if name is not None), None)


#: The number of ids for tools in ``sys.monitoring``.
_TOOLS = 6
#: Names by which people know these tools.
_KNOWN_AS = {"_lsprof": "cProfile", "bdb": "pdb"}


def _package(module: str) -> str:
    if module == "__main__":  # python -m cProfile, or the script's own
        words = getattr(sys, "orig_argv", [])
        module = words[words.index("-m") + 1] if "-m" in words[:-1] else "its own script"
    package = module.partition(".")[0]
    return _KNOWN_AS.get(package, package)
