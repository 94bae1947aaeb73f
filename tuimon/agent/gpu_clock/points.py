"""Moments inside a backward pass at which the gradients of a few parameters, spread over the model, are complete.

Between the two ends of a phase the GPU may have run dry and caught up again; each moment in between at which launches
were ahead excludes that for the part before it. torch calls back where a leaf's gradient has been accumulated
(``register_post_accumulate_grad_hook``, official since 2.1). The hooks are there during one timed backward pass and
never between two: they would be copied and saved with the parameters.
"""

import sys
import weakref
from typing import Any, Callable, List, Optional

from ..outside import raised_by_us

#: Fewest and most parameters. Each costs two calls of 1-2 us to hook and unhook, and an event.
FEWEST, MOST = 4, 16
#: One parameter for so much of a step, in ns: about 10 us of it, 0.1 %.
EVERY_NS = 10_000_000
#: Most parameters among which they are chosen.
_PARAMETERS_LIMIT = 4096

_optimizer: Optional[Any] = None  # weak


def _nothing() -> None:
    """Called while nothing is armed."""


def see_optimizer(optimizer: Any) -> None:
    """Take its parameters for those that are trained."""
    global _optimizer
    try:
        _optimizer = weakref.ref(optimizer)
    except raised_by_us(TypeError):
        _optimizer = None


class GradientPoints:
    """``arm`` before a backward pass, ``disarm`` after it; an error turns them off for good."""

    def __init__(self) -> None:
        self._on = True
        self._reached: Callable[[], None] = _nothing
        self._chosen: List[Any] = []  # weak
        self._of: Any = None  # the optimizer they were chosen from, weak
        self._count = 0
        self._handles: List[Any] = []
        self._hooked: List[Any] = []

    def arm(self, reached: Callable[[], None], count: int) -> bool:
        """Have ``reached`` called at ``count`` points at most, in the thread that runs the backward pass.

        Whether there are any.
        """
        if not self._on or _optimizer is None or _is_traced():
            return False
        try:
            stale = self._of is not _optimizer or self._count != count
            if stale or any(weak() is None for weak in self._chosen):
                self._of, self._count, self._chosen = _optimizer, count, _choose(_optimizer(), count)
            self._reached = reached
            for weak in self._chosen:
                parameter = weak()
                if parameter is not None and parameter.requires_grad:
                    self._hooked.append(parameter)
                    self._handles.append(parameter.register_post_accumulate_grad_hook(self.on_gradient))
        except raised_by_us(Exception):  # torch before 2.1, a parameter of a kind of its own
            self._on = False
            self.disarm()
        return bool(self._handles)

    def on_gradient(self, parameter: Any) -> None:
        """The gradient of a parameter is complete: autograd calls this, in its own thread where there is a GPU."""
        self._reached()

    def disarm(self) -> None:
        """Leave the parameters as they were."""
        self._reached = _nothing  # it belongs to the clock that has us: a circle would keep its ring open
        handles, self._handles = self._handles, []
        hooked, self._hooked = self._hooked, []
        try:
            for handle in handles:
                handle.remove()
            for parameter in hooked:
                if not parameter._post_accumulate_grad_hooks:  # else autograd would call into Python for nothing
                    parameter._post_accumulate_grad_hooks = None
        except raised_by_us(Exception):
            self._on = False


def points_for(step_ns: int) -> int:
    """How many points steps of this length have."""
    return min(MOST, max(FEWEST, 1 << max(0, (step_ns // EVERY_NS).bit_length() - 1)))


def _choose(optimizer: Any, count: int) -> List[Any]:
    """As many parameters, evenly spread in the order of the model."""
    if optimizer is None:
        return []
    found = [p for group in optimizer.param_groups for p in group["params"][:_PARAMETERS_LIMIT] if p.requires_grad]
    count = min(count, len(found))
    return [weakref.ref(found[(2 * n + 1) * len(found) // (2 * count)]) for n in range(count)]


def _is_traced() -> bool:
    """True if the backward pass is compiled, hooks included: another hook would have it compiled anew."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    return bool(getattr(compiled, "compiled_autograd_enabled", False))
