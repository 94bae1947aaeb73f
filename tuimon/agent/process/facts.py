"""The facts that this process publishes about itself: its identity, its rank, its GPUs, its starter and its purpose.

Calls nothing that could wait. Yama's ptrace scope 1 (Ubuntu's default): only an ancestor may read a process, unless the
process permits others.
"""

import os
import sys
import time
from typing import Any, Dict, Iterator, Optional, Tuple

from .. import debug_settings
from ..outside import attempt, variable
from ..ring.files import is_running
from ..torch_compat.unobserved import is_slot
from . import gc_pauses, loop_stacks, training_facts

#: Limits on the error that ended the program: bytes of its text, half of them from its end; and innermost frames, with
#: as many outside packages, which 60 frames of torch.compile may hide. A ring has room for 8 KiB of facts.
_ERROR_BYTES = 1500
_ERROR_FRAMES = 16
_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))


def facts() -> Dict[str, Any]:
    """The facts that are known as soon as torch is imported."""
    torch = sys.modules.get("torch")
    return {
        "run": variable("TUIMON_RUN"),
        "output": variable("TUIMON_OUTPUT"),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "torch": str(getattr(torch, "__version__", "")) or None,
        "rank": _number(variable("RANK")),
        "world_size": _number(variable("WORLD_SIZE")),
        "cuda_visible_devices": variable("CUDA_VISIBLE_DEVICES"),
        "cuda_device_order": variable("CUDA_DEVICE_ORDER"),
        "gpu_uuids": [],
        "gc": gc_pauses.is_installed(),
        "tracer": debug_settings.tracer(),
    }


def late_facts() -> Dict[str, Any]:
    """The facts known once the training runs: rank, GPUs, optimizers, loop. Never initialises CUDA, never waits."""
    late: Dict[str, Any] = {}
    for found in (
        training_facts.precision_facts,
        training_facts.vectors,
        training_facts.optimizer_facts,
        training_facts.gradient_facts,
        training_facts.warning_facts,
        loop_stacks.facts,
        loop_stacks.planned,
        _intra_op_threads,
        debug_settings.facts,
        _rank,
        _gpu_uuids,
    ):
        late.update(attempt(found) or {})
    return late


def uncaught() -> Dict[str, Any]:
    """The exception that has ended the main program, about when, and the frames it came through; else empty.

    ``{"error": text, "raised_ns": time, "raised_in": {"files": [file, ...], "frames": [[number of its file, line,
    function], ...]}}``, outermost first. Python notes it for debuggers once it has ended the program, but also if a
    prompt or an extension has printed one and goes on.
    """
    error, step = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
    if not isinstance(error, BaseException) or step is None or hasattr(sys, "ps1"):
        return {}
    if step.tb_frame.f_code.co_name not in ("<module>", "_run_module_as_main"):
        return {}
    text = _text(error)
    size = len(text.encode("ascii", "backslashreplace"))  # as in the ring
    if size > _ERROR_BYTES:
        half = len(text) * _ERROR_BYTES // size // 2
        text = text[:half] + text[-half:]
    frames = list(_passed(step))
    outside = [number for number, (file, _, _) in enumerate(frames) if "-packages/" not in file]
    kept = {*outside[-_ERROR_FRAMES:], *range(len(frames))[-_ERROR_FRAMES:]}
    files: Dict[str, int] = {}
    numbered = loop_stacks.numbered([frames[number] for number in sorted(kept)], files)
    raised_in = {"files": list(files), "frames": numbered}
    return {"error": text, "raised_ns": time.monotonic_ns(), "raised_in": raised_in}


def _text(error: BaseException) -> str:
    """The error's last line in a traceback; without the message if the program's own code would have to give it.

    Python has already called that code once, to print the error.
    """
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else "%s.%s" % (kind.__module__, kind.__qualname__)
    )
    words = is_slot(kind, "__str__") and all(map(_is_plain, error.args)) and str(error)
    return "%s: %s\n" % (name, words) if words else name + "\n"


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


def _passed(step: Any) -> Iterator[Tuple[str, int, str]]:
    while step is not None:
        code = step.tb_frame.f_code
        yield code.co_filename, step.tb_lineno or 0, code.co_name
        step = step.tb_next


def _intra_op_threads() -> Dict[str, Any]:
    """The number of threads that share an operation on the CPU."""
    number = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return {} if number is None else {"intra_op_threads": int(number())}


def _rank() -> Dict[str, Any]:
    """Rank and world size of a process group that was set up without environment variables."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return {}
    return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}


def _gpu_uuids() -> Dict[str, Any]:
    """UUIDs of the current CUDA device and of those that hold memory of this process, as the driver writes them."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return {}
    torch = sys.modules.get("torch")
    current = cuda.current_device()
    used = [i for i in range(cuda.device_count()) if i == current or cuda.memory_reserved(i)]
    is_hip = getattr(getattr(torch, "version", None), "hip", None)
    properties = [cuda.get_device_properties(index) for index in used]  # cached by torch at initialisation
    found = [str(each.uuid) for each in properties if getattr(each, "uuid", None) is not None]
    if is_hip:
        found = [uuid for uuid in map(_hip_uuid, found) if uuid is not None]
    uuids = [uuid if uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid for uuid in found]
    return {"gpu_uuids": uuids} if uuids else {}


def _hip_uuid(uuid: str) -> Optional[str]:
    """HIP's UUID is 16 hexadecimal digits; torch writes each as the code of its letter. None for any other form."""
    digits = bytes.fromhex(uuid.replace("-", "")).decode("ascii", "replace")
    return digits if len(digits) == 16 and not digits.strip("0123456789abcdef") else None


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text is not None and text.isdecimal() else None


#: Parts of the command lines of processes that import torch and rarely train.
_AUXILIARY_SIGNS = (b"--multiprocessing-fork", b"multiprocessing.forkserver", b"_inductor/compile_worker")
_NAMESPACE = "/proc/self/ns/pid"


def starter() -> Optional[Tuple[int, int]]:
    """Pid and start time of the tuimon that started this run, named in the environment: PID-STARTTICKS-PIDNAMESPACE.

    None if none is named, or if it has no pid in our namespace. Raises ValueError if the name is malformed, OSError if
    our namespace is unknown.
    """
    named = variable("TUIMON_MONITOR")
    if not named:
        return None
    pid, ticks, namespace = named.split("-", 2)
    return (int(pid), int(ticks)) if namespace == os.readlink(_NAMESPACE) else None


def starter_has_ended() -> bool:
    """True if the tuimon that started this run is known to be gone: it was killed, or has left the run to itself."""
    known = attempt(starter)
    return known is not None and not is_running(*known)


def is_auxiliary() -> bool:
    """True if this is a child of multiprocessing or a compiler process: it gets a ring only once it trains."""
    if "--multiprocessing-fork" in sys.argv:
        return True
    line = attempt(_head_of, "/proc/self/cmdline", 65536) or b""
    return any(sign in line for sign in _AUXILIARY_SIGNS)


def _head_of(path: str, size: int) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, size)
    finally:
        os.close(handle)


_SCOPE_FILE = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61
_PR_SET_PTRACER_ANY = -1

is_restricted: Optional[bool] = None


def allow_tracers() -> None:
    """Let the monitor's py-spy, a sibling, sample this process. Needed again in every forked child: not inherited."""
    attempt(_allow_tracers)


def _allow_tracers() -> None:
    global is_restricted
    if is_restricted is None:
        is_restricted = variable("TUIMON_RUN") is not None and attempt(ptrace_scope) == 1  # None if there is no Yama
    tracer = _tracer() if is_restricted else None
    if tracer is None:
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer), 0, 0, 0)


def _tracer() -> Optional[int]:
    """The process that may trace us: the tuimon that started the run, with its descendants; None once it has ended.

    Any process if that tuimon has no pid in our namespace, is not named, or shows the run's output: its full screen may
    be left, and the ``tuimon attach`` that comes back to the training is not its descendant.
    """
    known = None if variable("TUIMON_OUTPUT") else starter()
    if known is None:
        return _PR_SET_PTRACER_ANY
    return known[0] if is_running(*known) else None


def ptrace_scope() -> int:
    return int(_head_of(_SCOPE_FILE, 16))
