"""The boundaries of a training loop that are hooked in torch: epoch, fetch, backward, optimizer; how each is undone.

``tuimon_fetch``, ``tuimon_backward`` and ``tuimon_scaler_step`` stand in sampled stacks, whose phase follows from these
names. None of them appears in a traceback that the user sees (Python 3.11 and later).

An epoch begins as ``iter(loader)`` starts workers, or restarts persistent ones, and may end early.
"""

import sys
from _thread import get_ident
from functools import wraps
from time import monotonic_ns
from typing import Any, Callable

from .. import cuda, runtime
from ..control.orders import attend, orders
from ..loading import batches, loader_facts, worker
from ..outside import attempt, hide_frame
from ..pace import CLOCK_UPDATES, pace
from ..process import loop_stacks
from ..ring import layout
from ..ring.layout import BACKWARD_BEGIN, BACKWARD_END, FETCH_BEGIN, FETCH_END, OPTIMIZER_BEGIN, OPTIMIZER_END, RETURNED
from ..torch_compat import compilations, dynamo, rebinding


def hook_fetch(dataloader: Any) -> None:
    """Put markers around the fetch of a batch. ``dataloader`` is the module ``torch.utils.data.dataloader``."""
    iterator_class = dataloader._BaseDataLoaderIter
    original = iterator_class.__next__
    state, numbers, timed = pace, loader_facts.numbers, worker.in_process  # a closure's cell is read faster

    @wraps(original)
    def tuimon_fetch(self: Any) -> Any:
        is_counted = state.last > 0 and numbers.get(id(self)) == state.usual_iterator
        if is_counted:
            state.last, state.updated = -1, False
            state.begun += 1
        else:
            number = numbers.get(id(self)) or iterator_id(self)
            is_counted = state.thread == get_ident() and state.passes_fetch(number)
            if not is_counted:
                ready = loader_facts.ready_batches(self)
                runtime.emit(FETCH_BEGIN, number, ready)
        try:
            batch = original(self)
        except BaseException as error:
            if is_counted:
                number = iterator_id(self)
                pace.fail_fetch(number)
            flag = layout.EXHAUSTED if isinstance(error, StopIteration) else layout.FETCH_FAILED
            runtime.emit(FETCH_END, number, flag)
            worker.end_fetch(self)
            hide_frame(error)
            raise
        if timed:
            worker.end_fetch(self)
        if is_counted:
            return batch
        (runtime.emit if runtime.clock is None else runtime.emit_timed)(FETCH_END, number)
        if monotonic_ns() >= batches.due_ns:
            attempt(batches.attend, self, number, batch)
        return batch

    dynamo.skip(tuimon_fetch)
    rebinding.rebind(iterator_class, "__next__", tuimon_fetch)
    with_workers = dataloader._MultiProcessingDataLoaderIter
    wrappers = (("__init__", _wrapped), ("_reset", _wrapped), ("__del__", _wrapped_end))
    for name, wrap in wrappers:  # an iterator is made, reused for another epoch, ended within one
        if name in with_workers.__dict__:
            rebinding.rebind(with_workers, name, wrap(with_workers.__dict__[name]))
    worker.hook_iterator(dataloader)


def hook_backward(autograd: Any) -> None:
    """Put markers around the engine call that ``Tensor.backward``, ``autograd.backward`` and ``autograd.grad`` share.

    It is bound in ``torch.autograd.graph`` as well: torch's own patching (export) restores it from there.
    """
    original = autograd._engine_run_backward
    # with cold caches, reading a variable of this function takes 0.1 us less than reading a name of the module
    state, dispatch_modes, ident = pace, dynamo.dispatch_modes(), get_ident

    @wraps(original)
    def tuimon_backward(*args: Any, **kwargs: Any) -> Any:  # noqa: PLR0912  (calls would take longer)
        if dispatch_modes() and dynamo.is_tracing():
            return original(*args, **kwargs)
        thread, is_inside = ident(), state.is_inside
        is_counted = state.open_gap_thread == thread and not is_inside
        if is_counted:
            state.last = 0
            state.backwards += 1
        elif state.thread == thread:
            is_counted = state.passes_backward()
        if is_counted:
            try:
                state.is_inside = True
                return original(*args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                state.is_inside = is_inside
        if runtime.paused_backwards:
            runtime.pass_paused_backward()
        use = 0 if kwargs.get("accumulate_grad", True) else RETURNED
        (runtime.emit if runtime.clock is None else runtime.emit_timed)(BACKWARD_BEGIN, use)
        try:
            if state.thread == thread:  # True for no other thread
                state.is_inside = True
            result = original(*args, **kwargs)
        except BaseException as error:
            runtime.emit_timed(BACKWARD_END, use)
            hide_frame(error)
            raise
        finally:
            if state.thread == thread:
                state.is_inside = is_inside
        (runtime.emit if runtime.clock is None else runtime.emit_timed)(BACKWARD_END, use)
        if runtime.clock_due:
            runtime.start_clock()
        if runtime.facts_due:
            runtime.publish_facts(loop_stacks.RETURNING if use else loop_stacks.BACKWARD, outputs=args[0])
        compilations.report(runtime)
        if orders.bell[0] != orders.heard:
            attend()
        return result

    dynamo.trace_instead(tuimon_backward, original)
    for module in (autograd, getattr(autograd, "graph", autograd)):
        if module.__dict__.get("_engine_run_backward") is original:
            rebinding.rebind(module, "_engine_run_backward", tuimon_backward)


def hook_optimizer(optimizer: Any) -> None:
    """Put markers around every optimizer's ``step``, by torch's official hooks (``torch.optim.optimizer``).

    The post hook does not run when a step raises. Markers carry the id of the optimizer: where a step begins while one
    of the same optimizer is open, the first was abandoned.
    """
    state, ident = pace, get_ident

    def step_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
        if state.counting_thread != ident():
            _begin_optimizer_step(id(optimizer))

    def step_ends(optimizer: Any, args: Any, kwargs: Any) -> None:
        if state.open_gap_thread == ident():
            if state.last <= 0:
                state.last, state.updated = 1, True
                state.updates += 1
                if state.updates % CLOCK_UPDATES == 0:
                    state.check_length()
            return
        _end_optimizer_step(id(optimizer))
        if runtime.facts_due:
            runtime.publish_facts(loop_stacks.OPTIMIZER, optimizer)
        runtime.consider_optimizer(optimizer)

    rebinding.add_step_hooks(optimizer, step_begins, step_ends)
    for hook in (step_begins, step_ends):
        dynamo.trace_instead(hook, rebinding.nothing)
        dynamo.skip_with_callees(hook)


def hook_scaler(grad_scaler: Any) -> None:
    """Put markers around ``GradScaler.step``: the optimizer's hooks do not run when it skips a step."""
    scaler_class = grad_scaler.GradScaler
    original = scaler_class.step

    @wraps(original)
    def tuimon_scaler_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if pace.counting_thread != get_ident():
            _begin_optimizer_step(id(self))
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            _end_optimizer_step(id(self))
            hide_frame(error)
            raise
        _end_optimizer_step(id(self))
        return result

    dynamo.trace_instead(tuimon_scaler_step, original)
    rebinding.rebind(scaler_class, "step", tuimon_scaler_step)


def hook_captures(graphs: Any) -> None:
    """Stop the GPU clock during captures. ``graphs``: ``torch.cuda.graphs`` or ``torch.accelerator.graphs``."""
    if runtime.clock_due or runtime.has_clock():
        cuda.hook_captures(graphs, runtime.wait_for_gpu_clock)


def _begin_optimizer_step(optimizer: int) -> None:
    (runtime.emit if runtime.clock is None else runtime.emit_timed)(OPTIMIZER_BEGIN, optimizer)


def _end_optimizer_step(optimizer: int) -> None:
    """Mark that a step of an optimizer, or of a scaler around it, has ended; in a gap it is only counted."""
    if pace.thread == get_ident() or pace.claim():
        is_counted = pace.counting_thread
        pace.end_optimizer_step()
        if is_counted:
            return
    (runtime.emit if runtime.clock is None else runtime.emit_timed)(OPTIMIZER_END, optimizer)


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def tuimon_iter(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("first_iter") or not runtime.on:  # ``__init__`` calls ``_reset``
            return original(self, *args, **kwargs)
        runtime.emit(layout.ITER_BEGIN)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            runtime.emit(layout.ITER_END)
            hide_frame(error)
            raise
        runtime.emit(layout.ITER_END, iterator_id(self))
        return result

    dynamo.skip(tuimon_iter)
    return tuimon_iter


def _wrapped_end(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an iterator's deletion, which waits for its workers unless the fetch that found the end has done so."""
    is_finalizing, numbers = sys.is_finalizing, loader_facts.numbers  # by then a module's names may be gone

    @wraps(original)
    def tuimon_del(self: Any) -> Any:
        number = not is_finalizing() and not self.__dict__.get("_shutdown", True) and numbers.get(id(self))
        marked = bool(number) and runtime.on
        if marked:
            runtime.emit(layout.ITER_BEGIN, number)
        try:
            return original(self)
        except BaseException as error:  # of an iterator that could not be made: Python prints it
            hide_frame(error)
            raise
        finally:
            if marked:
                runtime.emit(layout.ITER_END)

    dynamo.skip(tuimon_del)
    return tuimon_del


def iterator_id(iterator: Any) -> int:
    """The id that this iterator's fetches carry."""
    return loader_facts.numbers.get(id(iterator)) or attempt(loader_facts.iterator_id, iterator) or 0
