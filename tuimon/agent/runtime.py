"""The state of this process's instrumentation: its ring, if it has one, and the ``emit`` that all hooks call.

Everything here is reached through the module (``runtime.emit``), because it changes: nothing before torch is imported,
the ring's own ``emit`` while there is a ring, a lazy one in forked children.
"""

import atexit
import os
import sys
import time
from _thread import allocate_lock
from typing import Any, Callable, Optional

from .gpu_clock import cuda
from .gpu_clock.clock import GpuClock
from .process import facts, yama
from .ring.files import YOUNG_S, make_ring
from .ring.layout import FETCH_BEGIN, ITER_BEGIN
from .ring.names import RangeNames
from .ring.writer import RingWriter
from .torch_compat import captures, dynamo


def _emit_nothing(kind: int, value: int = 0, flag: int = 0) -> None:
    """No ring: markers go nowhere."""


def _never() -> bool:
    return False


#: Write a marker: ``emit(kind, value, flag)``. Never raises while ``on``.
emit: Callable[..., None] = _emit_nothing
#: Whether markers are wanted. False: every function of the API returns at once.
on = False
#: torch's own, once it is imported: Dynamo replaces it by True, so that what follows is not traced.
is_compiling: Callable[[], bool] = _never
#: Facts that are known only once the training runs (rank, GPUs) are still to be told.
facts_due = False
#: The GPU clock (or what waits for CUDA in its place): boundaries go through ``emit_timed``. None: there is none.
clock: Any = None
#: So many backward passes until the GPU clock, which rests, is to be asked again (``wake``); 0: it does not rest.
resting = 0
#: The names of user ranges in this process's ring.
names: Optional[RangeNames] = None

_rested: Any = None  # the GPU clock while it rests
_writer: Optional[RingWriter] = None
_boundaries = 0
_made_ns = 0
_fork_hooked = False
_opening = allocate_lock()

#: Processes that import torch and do not train: they get a ring only if they prove otherwise.
_ATTENDANTS = (b"--multiprocessing-fork", b"multiprocessing.forkserver", b"_inductor/compile_worker")
#: After so many backward passes what is not known is taken to be absent.
_FACTS_BOUNDARIES = 64


def emit_timed(kind: int, value: int = 0) -> None:
    """Write the marker of a boundary, and where the GPU clock times it, have its event recorded after it."""
    timing = clock
    number = 0 if timing is None else timing.number(kind, value)
    emit(kind, value, number)
    if number:
        timing.record(number)


def wake() -> None:
    """The GPU clock has rested."""
    global clock, resting, _rested
    clock, _rested, resting = _rested or clock, None, 0


def let_gpu_clock_pass() -> None:
    """Return when no other thread is touching the GPU for the GPU clock."""
    if clock is not None:
        clock.let_pass()


def start(torch: Any) -> None:
    """torch has been imported: make the ring, or be ready to make it at the first marker of a training."""
    global on, is_compiling, clock, _fork_hooked
    if on:
        return
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_dynamo_compiling", _never)
    on = True
    if not _fork_hooked:
        _fork_hooked = True
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_at_exit)
    yama.allow_tracers()
    if cuda.is_built(torch) and os.environ.get("TUIMON_GPU_EVENTS") != "0":
        clock = cuda.WaitingClock(torch.cuda, _start_clock)
    if _is_attendant():
        _be_lazy()
    else:
        open_ring()


def stop() -> None:
    """No more markers from this process."""
    global on, emit, facts_due, clock, _writer, names
    on = False
    wake()
    timing, clock = clock, None
    if timing is not None:
        timing.close()
    emit = _emit_nothing
    facts_due = False
    names = None
    writer, _writer = _writer, None
    if writer is not None and writer.pid == os.getpid():
        writer.flush()
        writer.unlink()


def writer() -> Optional[RingWriter]:
    """The ring of this process; None while it has none."""
    return _writer


def open_ring() -> bool:
    """Make the ring of this process and publish what is known of it. Without room for one, instrumentation ends."""
    global emit, facts_due, _writer, names, _boundaries, _made_ns
    if not _opening.acquire(False):  # another thread is at it: its first marker is there, this one is lost
        return False
    try:
        writer = make_ring()
        if writer is None:
            stop()
            return False
        writer.set_meta(facts.facts())
        _writer = writer
        names = RangeNames(writer)
        _boundaries = 0
        _made_ns = time.monotonic_ns()
        dynamo.skip_with_callees(writer.emit, writer.flush)
        emit = writer.emit
        facts_due = True
        return True
    finally:
        _opening.release()


def open_names() -> Optional[RangeNames]:
    """``names`` of a process that has waited for its first marker until now."""
    if names is None and on:
        open_ring()
    return names


def tell_facts(optimizer: Any = None) -> None:
    """At a step boundary, while ``facts_due``: publish what torch knows by now."""
    global facts_due, _boundaries
    if _writer is None:
        return
    _boundaries += 1
    if _boundaries & (_boundaries - 1):  # 1, 2, 4, ... 64
        return
    late = facts.late_facts(optimizer)
    if ("gpu_uuids" in late and "parameter_dtypes" in late) or _boundaries >= _FACTS_BOUNDARIES:
        facts_due = False
    if late:
        try:
            _writer.set_meta({**facts.facts(), **late})
        except Exception:
            facts_due = False


def _start_clock() -> None:
    """The program has initialised CUDA."""
    global clock
    try:
        device = cuda.CudaDevice(sys.modules["torch"], captures.any_open)
        clock = GpuClock(device, _emit_anew, rest=_let_rest)
    except Exception:  # a torch that has other names for what is needed
        clock = None


def _let_rest(backwards: int) -> None:
    global clock, resting, _rested
    _rested, clock, resting = clock, None, backwards


def _emit_anew(kind: int, value: int, flag: int) -> None:
    """For who keeps it: ``emit`` changes."""
    emit(kind, value, flag)


def _be_lazy() -> None:
    global emit
    emit = _emit_first


def _emit_first(kind: int, value: int = 0, flag: int = 0) -> None:
    """The first marker of a process that is no trainer until it behaves like one. DataLoader workers load, too."""
    is_end = kind & 1  # of what began in the parent
    if not is_end and kind not in (FETCH_BEGIN, ITER_BEGIN) and open_ring():
        emit(kind, value, flag)


def _after_fork() -> None:
    """In a forked child: let go of the parent's ring, and of its events without freeing them."""
    global facts_due, clock, _writer, names, _opening
    wake()
    if clock is not None:
        clock = clock.in_child()
    _opening = allocate_lock()
    _writer = None
    names = None
    facts_due = False
    if on:
        _be_lazy()
        yama.allow_tracers()


def _at_exit() -> None:
    if _writer is None or _writer.pid != os.getpid():
        return
    _writer.flush()
    # of a short run under ``tuimon run`` the monitor may not have seen the ring yet: it reads and removes it
    if not os.environ.get("TUIMON_RUN") or time.monotonic_ns() - _made_ns > YOUNG_S * 1e9:
        _writer.unlink()


def _is_attendant() -> bool:
    if "--multiprocessing-fork" in sys.argv:
        return True
    try:
        with open("/proc/self/cmdline", "rb") as cmdline:
            line = cmdline.read(65536)
    except OSError:
        return False
    return any(sign in line for sign in _ATTENDANTS)
