"""The state of this process's instrumentation: its ring, if it has one, and the ``emit`` that all hooks call.

Everything is reached through the module (``runtime.emit``) because it changes: ``emit`` does nothing before torch is
imported, is the ring's own while there is a ring, and makes the ring at the first marker in forked children.
"""

import atexit
import os
import sys
import time
from types import FrameType
from typing import Any, Callable, List, Optional

from . import cuda
from .gpu_clock import GpuClock
from .outside import attempt, shielded_at_fork, variable
from .own_threads import Turn
from .process import facts, loop_stacks, training_facts
from .ring.layout import FETCH_BEGIN, ITER_BEGIN, OPTIMIZER_MADE, WITHDRAWN
from .ring.writer import YOUNG_S, RingWriter, make_ring
from .torch_compat import compilations, dynamo


def _nothing(*_: Any) -> Any:
    """Do nothing: there is no ring, no gap, no order."""


#: Write a marker: ``emit(kind, value, flag)``. Never raises while ``on``.
emit: Callable[..., None] = _nothing
#: True if this process is instrumented. False: every function of the API returns immediately.
on = False
#: torch's ``is_compiling``, once torch is imported: Dynamo takes it for True, and does not trace the code after it.
is_compiling: Callable[[], bool] = _nothing
#: True if facts that are known only once the training runs (rank, GPUs) have still to be published.
facts_due = False
#: The GPU clock: boundaries go through ``emit_timed``. None: there is none, or it pauses.
clock: Any = None
#: True if the GPU clock starts once the program has initialised CUDA, which it may do late (``start_clock``).
clock_due = False
#: Backward passes until the paused GPU clock goes on (``resume_clock``); 0: it is not paused.
paused_backwards = 0
#: Functions that let go of the parent's loop, orders and loading slots in a forked child.
in_child: List[Callable[[], None]] = []
#: End the gap in the markers (``pace``).
end_gap: Callable[[], None] = _nothing
#: Take orders from a ring, end all (``control/orders.py``).
listen: Callable[[Any], None] = _nothing
end_orders: Callable[[], None] = _nothing
#: Undo all hooks (``install``).
withdraw: Callable[[], None] = _nothing

paused_clock: Any = None
_writer: Optional[RingWriter] = None
_boundaries = 0
_optimizer_marked = False  # OPTIMIZER_MADE is in the ring
_made_ns = 0
_fork_hooked = False
_start_pid = 0  # of the process that installed the hooks

#: Optimizer steps between two checks for another optimizer, and how many there were since.
CHECK_STEPS = 64
unchecked_steps = 0

#: After this many boundaries, facts that are still unknown are taken to be absent.
_FACTS_BOUNDARIES = 64
#: After this many boundaries, all optimizers that take turns are taken to be known.
_GRADIENTS_BOUNDARIES = 16


def emit_timed(kind: int, value: int = 0) -> None:
    """Write a boundary's marker; if the GPU clock times this boundary, record its event after the marker."""
    timing = clock
    number = 0 if timing is None else timing.event_number(kind, value)
    emit(kind, value, number)
    if number:
        timing.record_event(number)


def pass_paused_backward() -> None:
    """Handle a backward that begins while the GPU clock pauses."""
    global paused_backwards
    paused_backwards -= 1
    if paused_backwards <= 0:
        resume_clock()


def resume_clock() -> None:
    global clock, paused_backwards, paused_clock
    clock, paused_clock, paused_backwards = paused_clock or clock, None, 0


def wait_for_gpu_clock() -> None:
    """Wait until no other thread touches the GPU for the GPU clock."""
    if clock is not None:
        clock.wait_for_release()


def has_clock() -> bool:
    """True if a GPU clock needs the boundaries, now or after its pause."""
    return paused_backwards > 0 or clock is not None


def start(torch: Any) -> None:
    """Make the ring now that torch has been imported, or get ready to make it at the first marker of a training."""
    global on, is_compiling, clock_due, _fork_hooked, _start_pid
    if on:
        return
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_dynamo_compiling", _nothing)
    on = True
    _start_pid = os.getpid()
    if not _fork_hooked:
        _fork_hooked = True
        os.register_at_fork(after_in_child=shielded_at_fork(_after_fork))
        atexit.register(_at_exit)
    facts.allow_tracers()
    clock_due = cuda.is_built(torch) and variable("TUIMON_GPU_EVENTS") != "0"
    if facts.is_auxiliary():
        open_at_first_marker()
    else:
        open_ring()


def stop() -> None:
    """Write no more markers from this process."""
    global on, emit, facts_due, clock, clock_due, _writer
    end_orders()
    end_gap()
    on = clock_due = False
    resume_clock()
    timing, clock = clock, None
    if timing is not None:
        timing.close()
    emit = _nothing
    facts_due = False
    writer, _writer = _writer, None
    if writer is not None and writer.pid == os.getpid():
        writer.flush()
        writer.unlink(WITHDRAWN)


def writer() -> Optional[RingWriter]:
    """The ring of this process; None while it has none."""
    return _writer


def open_ring() -> bool:
    """Make the ring of this process and publish its facts; if there is no room for a ring, stop."""
    turn = _opening.take()
    if turn is None:  # another thread is making it: its first marker is kept, this one is lost
        return False
    try:
        writer = _writer or _made_ring()
        if writer is None:
            stop()
            return False
        _use_ring(writer)
        return True
    finally:
        _opening.release(turn)


_opening = Turn(open_ring)


def _made_ring() -> Optional[RingWriter]:
    writer: Optional[RingWriter] = attempt(make_ring)
    if writer is not None:
        writer.set_meta(facts.facts())
        dynamo.skip_with_callees(writer.emit, writer.flush)
    return writer


def _use_ring(writer: RingWriter) -> None:
    """Write to this ring from now on; ``emit`` comes last, so that what an exception cuts short is done again."""
    global emit, facts_due, _writer, _boundaries, _optimizer_marked, _made_ns
    if _writer is not writer:
        _boundaries = 0
        _optimizer_marked = False
        _made_ns = time.monotonic_ns()
        loop_stacks.forget()
        training_facts.forget()
        compilations.begin()
        facts_due = True
        util = sys.modules.get("multiprocessing.util")
        if util is not None and _start_pid != os.getpid():  # forked by multiprocessing: ``atexit`` does not run
            util.Finalize(None, write_waiting, exitpriority=0)
        _writer = writer
    listen(writer)
    emit = writer.emit


def opened_writer() -> Optional[RingWriter]:
    """The ring of this process, made now if the process has waited for its first marker until now."""
    if _writer is None and on:
        open_ring()
    return _writer


def mark_optimizer() -> None:
    """Mark once that the program has an optimizer: it trains, though it may evaluate before."""
    global _optimizer_marked
    if not _optimizer_marked and training_facts.any_made():
        _optimizer_marked = True
        emit(OPTIMIZER_MADE)


def publish_facts(boundary: str = "", optimizer: Any = None, outputs: Any = ()) -> None:
    """Publish the facts known by now; the hooks call this at boundaries while ``facts_due``.

    ``boundary``: the one of ``loop_stacks`` that ends here; empty: none of them does. ``outputs``: those that a
    backward pass has begun with.
    """
    global facts_due, _boundaries, _optimizer_marked
    if _writer is None:
        return
    _boundaries += 1
    is_new = attempt(_note, boundary, sys._getframe(1), optimizer)
    if boundary == loop_stacks.BACKWARD and _boundaries >= _GRADIENTS_BOUNDARIES:
        attempt(training_facts.count_gradients, outputs)
    if _boundaries & (_boundaries - 1) and not is_new:  # 1, 2, 4, ... 64
        return
    if optimizer is not None:
        _optimizer_marked = True  # its step is in the ring
    attempt(_read, optimizer, outputs)
    facts_due = attempt(_publish, _writer) is not None and _boundaries < _FACTS_BOUNDARIES


def _note(boundary: str, frame: FrameType, optimizer: Any) -> bool:
    """Note where the loop calls a boundary, and an optimizer; True if the optimizer is new."""
    if boundary and loop_stacks.is_due(_boundaries, boundary):
        loop_stacks.note(boundary, frame)
    return optimizer is not None and training_facts.note(optimizer)


def _read(optimizer: Any, outputs: Any) -> None:
    if optimizer is not None:
        training_facts.read_dtypes(optimizer)
    else:
        mark_optimizer()
    training_facts.read_products(outputs)


def _publish(writer: RingWriter) -> bool:
    late = facts.late_facts()
    if late:
        writer.set_meta({**facts.facts(), **late})
    return True


def consider_optimizer(optimizer: Any) -> None:
    """Publish facts again if another optimizer has begun to step; one step in CHECK_STEPS is checked."""
    global unchecked_steps
    unchecked_steps += 1
    if unchecked_steps < CHECK_STEPS:
        return
    unchecked_steps = 0
    if not facts_due and training_facts.is_new(optimizer):
        publish_facts_anew()


def publish_facts_anew() -> None:
    """Begin to publish facts again, since another loop may follow."""
    global facts_due, _boundaries
    if _writer is not None:
        facts_due, _boundaries = True, 0
        loop_stacks.begin_loop()
        training_facts.forget_gradients()


def start_clock() -> None:
    """Start the GPU clock if the program has initialised CUDA by now; never in a child that was forked after that."""
    global clock, clock_due
    torch_cuda = sys.modules.get("torch.cuda")
    if torch_cuda is None or not torch_cuda.is_initialized():
        return

    def made() -> GpuClock:
        device = cuda.CudaDevice(sys.modules["torch"], cuda.any_capture)
        return GpuClock(device, emit_current, pause=pause_clock)

    clock = attempt(made)  # None with a torch that has other names for what the clock needs
    clock_due = False


def pause_clock(backwards: int) -> None:
    """Take the clock out of the hooks for this many backward passes."""
    global clock, paused_backwards, paused_clock
    paused_clock, clock, paused_backwards = clock, None, backwards


def emit_current(kind: int, value: int, flag: int) -> None:
    """The current ``emit``, for callers that keep a reference."""
    emit(kind, value, flag)


def open_at_first_marker() -> None:
    """Have the first marker of a trainer make the ring."""
    global emit
    emit = _emit_first


def _emit_first(kind: int, value: int = 0, flag: int = 0) -> None:
    """Make the ring at a marker that only a trainer emits: not of fetches, which DataLoader workers do, too."""
    is_end = kind & 1  # of a pass that began in the parent
    if not is_end and kind not in (FETCH_BEGIN, ITER_BEGIN) and open_ring():
        emit(kind, value, flag)


def _after_fork() -> None:
    """Let go of the parent's ring in a forked child, and of its events without freeing them."""
    global facts_due, clock, _writer
    for let_go in in_child:
        let_go()
    resume_clock()
    if clock is not None:
        clock.close()
        clock = None
    _writer = None
    facts_due = False
    if on:
        open_at_first_marker()
        facts.allow_tracers()


def write_waiting() -> None:
    """Write everything that is still unwritten: the counts of a gap, and held markers."""
    if _writer is not None and _writer.pid == os.getpid():
        end_gap()
        _writer.flush()


def _at_exit() -> None:
    if _writer is None or _writer.pid != os.getpid():
        return
    end_orders()
    write_waiting()
    error = attempt(facts.uncaught)
    if error:
        attempt(_writer.add_meta, error)
    # the monitor may not have found the ring of a short run under ``tuimon run`` yet: it will read and remove it
    is_young = time.monotonic_ns() - _made_ns <= YOUNG_S * 1e9
    if not (variable("TUIMON_RUN") and is_young) or facts.starter_has_ended():
        _writer.unlink()
