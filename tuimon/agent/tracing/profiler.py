"""torch's profiler (kineto), switched on and off around steps without what costs the training most.

``torch.profiler`` waits for the GPU when it stops, and parses the events in Python. Here libkineto is called directly:
it stops without waiting and writes the file itself.
"""

import gc
import os
import sys
from typing import Any, Callable, Optional

from ..outside import attempt
from ..variables import variable

#: Set for the first start in a process, which reads it: kineto would add two lines to stderr at every trace.
_LOG_LEVEL = "KINETO_LOG_LEVEL"
_SILENT = "6"
#: Profilers of which only one at a time can have the GPU's events; set by Nsight Systems, Nsight Compute and rocprof.
_OTHERS = (
    ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
    ("NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "Nsight Compute"),
    ("CUDA_INJECTION64_PATH", "a CUDA tool (CUDA_INJECTION64_PATH)"),
    ("ROCP_TOOL_LIBRARIES", "rocprof"),
    ("HSA_TOOLS_LIB", "rocprof"),
)


class Profiler:
    """One trace of this thread; must be stopped on the thread that started it."""

    def __init__(self, torch: Any) -> None:
        self._module = torch.autograd.profiler
        self.uses_gpu = _uses_gpu(torch)
        self._profile = _made(self._module, self.uses_gpu)

    def start(self) -> None:
        """Record from now on."""
        module, profile = self._module, self._profile
        quiet = variable(_LOG_LEVEL) is None
        if quiet:
            os.environ[_LOG_LEVEL] = _SILENT
        try:
            module._prepare_profiler(profile.config(), profile.kineto_activities)
            module._enable_profiler(profile.config(), profile.kineto_activities)
        finally:
            if quiet and variable(_LOG_LEVEL) is not None:
                del os.environ[_LOG_LEVEL]

    def stop(self) -> Any:
        """The recording, with a ``save(path)``."""
        return self._module._disable_profiler()


def refusal(torch: Any) -> Optional[str]:
    """Why no trace can be taken on this thread now; None when it can."""
    module = getattr(getattr(torch, "autograd", None), "profiler", None)
    if module is None or not getattr(module, "kineto_available", _no)():
        return "this torch is built without kineto"
    enabled = getattr(torch._C._autograd, "_profiler_enabled", _no)
    if enabled():
        return "the program runs a profiler of its own now (torch.profiler, emit_nvtx)"
    if any(_is_open(each) for each in gc.get_referrers(module.profile) if type(each) is module.profile):
        return "the program has a torch.profiler of its own ready"
    if _uses_gpu(torch):
        for name, tool in _OTHERS:
            if variable(name):
                return "%s has the GPU's events" % tool
    return None


class Guard:
    """While a trace is taken, a profiler that the program starts goes first: two at a time are an error of torch's."""

    def __init__(self, torch: Any, give_way: Callable[[], None]) -> None:
        self._module = torch.autograd.profiler
        self._bound = {}
        for name in ("_prepare_profiler", "_enable_profiler"):
            original = getattr(self._module, name)
            self._bound[name] = original, _giving_way(original, give_way)

    def set(self) -> None:
        """Guard from now on."""
        for name, (original, wrapper) in self._bound.items():
            if getattr(self._module, name) is original:
                setattr(self._module, name, wrapper)

    def lift(self) -> None:
        """Guard no more."""
        for name, (original, wrapper) in self._bound.items():
            if getattr(self._module, name) is wrapper:
                setattr(self._module, name, original)


def stream_event(torch: Any) -> Any:
    """An event recorded on the current stream, to be queried for when it is done; None without a GPU in use."""
    if not _uses_gpu(torch) or torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event()
    event.record()
    return event


def is_capturing(torch: Any) -> bool:
    """True if a CUDA graph is being captured, which a profiler must not disturb."""
    return _uses_gpu(torch) and bool(torch.cuda.is_current_stream_capturing())


def _giving_way(original: Any, give_way: Callable[[], None]) -> Any:
    def tuimon_give_way(*args: Any, **kwargs: Any) -> Any:
        give_way()
        return original(*args, **kwargs)

    return tuimon_give_way


def _made(module: Any, uses_gpu: bool) -> Any:
    """torch's own description of a trace; ``trace_only`` (2.13) leaves out events that only Python would read.

    Shapes, by which operations are counted, double the time to stop and to write (measured: 127 to 258 ms of 16,000
    events, torch 2.13).
    """
    settings = {"use_kineto": True, "record_shapes": True, **({"use_device": "cuda"} if uses_gpu else {})}
    config = attempt(lambda: sys.modules["torch"]._C._profiler._ExperimentalConfig(trace_only=True))
    return module.profile(**settings, **({} if config is None else {"experimental_config": config}))


def _uses_gpu(torch: Any) -> bool:
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def _is_open(profile: Any) -> bool:
    """True if a profile has been entered and not left."""
    facts = getattr(profile, "__dict__", {})
    return bool(facts.get("entered")) and facts.get("kineto_results") is None


def _no() -> bool:
    return False
