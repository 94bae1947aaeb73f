"""The boundaries of a training loop that are hooked in torch: fetch, backward, optimizer; and how each is undone.

``tuimon_fetch``, ``tuimon_backward`` and ``tuimon_scaler_step`` stand in sampled stacks, whose phase follows from these
names. None of them appears in a traceback that the user sees (Python 3.11 and later).
"""

from _thread import get_ident
from functools import wraps
from typing import Any

from . import rests, runtime
from .control.orders import attend, orders
from .gpu_clock.clock import GpuClock
from .gpu_clock.cuda import WaitingClock
from .gpu_clock.points import GradientPoints
from .loading import batches, epochs, loader_facts, worker
from .loading.batch_timer import BatchTimer
from .outside import raised_by_us
from .process import loop_stacks, precision
from .rests import Left, rest
from .ring.layout import (
    BACKWARD_BEGIN,
    BACKWARD_END,
    EXHAUSTED,
    FETCH_BEGIN,
    FETCH_END,
    FETCH_FAILED,
    OPTIMIZER_BEGIN,
    OPTIMIZER_END,
    RETURNED,
)
from .torch_compat import captures, dynamo, rebinding, step_hooks
from .torch_compat.tracebacks import hide_frame


def hide_from_dynamo() -> None:
    """Have Dynamo skip the functions that hooks call."""
    dynamo.skip_with_callees(
        raised_by_us,
        loader_facts.iterator_id,
        loader_facts.ready_batches,
        hide_frame,
        worker.timer_of_worker,
        BatchTimer.enter,
        runtime.publish_facts,
        runtime.consider_optimizer,
        runtime.emit_timed,
        runtime.resume_clock,
        rests.consider,
        batches.arm,
        rests.end,
        rests.wake,
        rests.cut_short,
        rests.mark_backward,
        rests.mark_end,
        precision.note_scaler,
        attend,
        _end_failed_fetch,
        _fetches_are_due,
        WaitingClock.event_number,
        GpuClock.event_number,
        GpuClock.record_event,
        GpuClock.record_point,
        GradientPoints.on_gradient,
    )
    dynamo.skip_own_functions()


def hook_fetch(dataloader: Any) -> None:
    """Put markers around the fetch of a batch. ``dataloader`` is the module ``torch.utils.data.dataloader``."""
    iterator_class = dataloader._BaseDataLoaderIter
    original = iterator_class.__next__

    @wraps(original)
    def tuimon_fetch(self: Any) -> Any:
        try:
            number = self._tuimon_iterator
        except raised_by_us(AttributeError):
            number = loader_facts.iterator_id(self)
        left = rest.left
        if number == left.iterator and left.fetches:
            left.fetches -= 1
            try:
                return original(self)
            except BaseException as error:
                _end_failed_fetch(number, error, left)
                hide_frame(error)
                raise
        ready = loader_facts.ready_batches(self)
        runtime.emit(FETCH_BEGIN, number, ready)
        try:
            batch = original(self)
        except BaseException as error:
            runtime.emit(FETCH_END, number, EXHAUSTED if isinstance(error, StopIteration) else FETCH_FAILED)
            hide_frame(error)
            raise
        (runtime.emit if runtime.clock is None else runtime.emit_timed)(FETCH_END, number)
        rest.fetches_due -= 1
        if rest.fetches_due <= 0:
            _fetches_are_due(self, number, batch)
        return batch

    dynamo.skip(tuimon_fetch)
    rebinding.rebind(iterator_class, "__next__", tuimon_fetch)
    epochs.hook_iterators(dataloader)


def hook_backward(autograd: Any) -> None:
    """Put markers around the engine call that ``Tensor.backward``, ``autograd.backward`` and ``autograd.grad`` share.

    It is bound in ``torch.autograd.graph`` as well: torch's own patching (export) restores it from there.
    """
    original = autograd._engine_run_backward

    @wraps(original)
    def tuimon_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if runtime.is_compiling():
            return original(t_outputs, *args, **kwargs)
        if runtime.paused_backwards:
            runtime.paused_backwards -= 1
            if runtime.paused_backwards <= 0:
                runtime.resume_clock()
        rest.unmarked = 0
        use = 0 if kwargs.get("accumulate_grad", True) else RETURNED
        (runtime.emit if runtime.clock is None else runtime.emit_timed)(BACKWARD_BEGIN, use)
        try:
            result = original(t_outputs, *args, **kwargs)
        except BaseException as error:
            runtime.emit_timed(BACKWARD_END, use)
            hide_frame(error)
            raise
        (runtime.emit if runtime.clock is None else runtime.emit_timed)(BACKWARD_END, use)
        if runtime.facts_due:
            runtime.publish_facts(loop_stacks.RETURNING if use else loop_stacks.BACKWARD, outputs=t_outputs)
        if orders.bell[0] != orders.heard:
            attend()
        return result

    dynamo.skip(tuimon_backward)
    rests.backward_hooks[:] = [
        rebinding.rebind(module, "_engine_run_backward", tuimon_backward)
        for module in (autograd, getattr(autograd, "graph", autograd))
        if module.__dict__.get("_engine_run_backward") is original
    ]


def hook_optimizer(optimizer: Any) -> None:
    """Put markers around every optimizer's ``step``, by torch's official hooks (``torch.optim.optimizer``).

    The post hook does not run when a step raises. Markers carry the id of the optimizer: where a step begins while one
    of the same optimizer is open, the first was abandoned.
    """
    rests.end_hooks[:] = step_hooks.add(optimizer, _step_begins, _step_ends)[1:]
    dynamo.skip_with_callees(_step_begins, _step_ends)


def hook_scaler(grad_scaler: Any) -> None:
    """Put markers around ``GradScaler.step``: the optimizer's hooks do not run when it skips a step."""
    scaler_class = grad_scaler.GradScaler
    original = scaler_class.step

    @wraps(original)
    def tuimon_scaler_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if runtime.is_compiling():
            return original(self, *args, **kwargs)
        if runtime.facts_due:
            precision.note_scaler(self)
        runtime.emit_timed(OPTIMIZER_BEGIN, id(self))
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            runtime.emit_timed(OPTIMIZER_END, id(self))
            hide_frame(error)
            raise
        runtime.emit_timed(OPTIMIZER_END, id(self))
        return result

    dynamo.skip(tuimon_scaler_step)
    rebinding.rebind(scaler_class, "step", tuimon_scaler_step)


def _end_failed_fetch(number: int, error: BaseException, left: Left) -> None:
    """A fetch without a batch is marked, and ends the rest."""
    if rest.open is left:  # else what ended the rest meanwhile has counted the fetch
        left.fetches += 1
        runtime.emit(FETCH_BEGIN, number)
    runtime.emit(FETCH_END, number, EXHAUSTED if isinstance(error, StopIteration) else FETCH_FAILED)


def _fetches_are_due(iterator: Any, number: int, batch: Any) -> None:
    """Measure the batch of this fetch, or begin a rest in an evaluation."""
    if batches.is_due():
        batches.inspect(iterator, number, batch)
    else:
        rests.consider_fetches()
        batches.arm()


def hook_captures(graphs: Any) -> None:
    """Stop the GPU clock during captures. ``graphs``: ``torch.cuda.graphs`` or ``torch.accelerator.graphs``."""
    if runtime.clock is not None:
        captures.hook(graphs, runtime.wait_for_gpu_clock)


def _step_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    if runtime.is_compiling():
        return
    left = rest.left
    if left.updates and left.thread == get_ident():
        left.updates -= 1
        if not left.updates:
            rests.mark_end()
        return
    if rest.unmarked and rest.unmarked == get_ident():
        rests.mark_backward()
    (runtime.emit if runtime.clock is None else runtime.emit_timed)(OPTIMIZER_BEGIN, id(optimizer))


def _step_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
    if runtime.is_compiling():
        return
    (runtime.emit if runtime.clock is None else runtime.emit_timed)(OPTIMIZER_END, id(optimizer))
    if runtime.facts_due:
        runtime.publish_facts(loop_stacks.OPTIMIZER, optimizer)
    rest.fetches_due = rest.fetches_again
    rest.due -= 1
    if rest.due <= 0:
        runtime.consider_optimizer(optimizer)
        rests.consider()
        batches.arm()
