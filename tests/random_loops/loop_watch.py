"""A stopwatch for loops that a framework writes: hooks of torch tell it where a step's parts begin and end.

No function of it is on the stack while torch or the framework works: before and after a fetch C iterators call it, at
the ends of the other parts torch's own hooks do.
"""

from __future__ import annotations

from itertools import chain
from operator import itemgetter

from laps import Laps
from torch.optim import optimizer
from torch.utils.data import DataLoader


class LoopWatch(Laps):
    """Notes fetches, backward passes, updates and evaluations by itself; its script notes pieces of work and steps."""

    def __init__(self, seconds):
        super().__init__(seconds)
        self._evaluates = self._has_gradients = self._has_updated = self._is_over = False
        optimizer.register_optimizer_step_pre_hook(lambda *_: self.lap(self._between()))
        optimizer.register_optimizer_step_post_hook(lambda *_: self._update_ends())
        iterate = DataLoader.__iter__
        DataLoader.__iter__ = lambda loader: self._watched(loader, iterate)

    def follow(self, model):
        """Of this model, or part of it, the backward passes are noted."""
        model.register_forward_hook(lambda _module, _arguments, output: self._await_gradient(output))
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda _: self._gradient_is_there())

    def lap(self, part, piece=None):
        """As ever; but an evaluation, and what comes after the last step, is no part of a step."""
        if not self._is_over:
            super().lap("eval" if self._evaluates else part, piece)

    def catch_up(self):
        """A piece of work begins: the time until now belongs to the part that it interrupts."""
        self.lap(self._between())

    def evaluated(self):
        """An evaluation has ended; what no one tells ends with the next fetch for the training."""
        self.lap("other")
        self._evaluates = False

    def step(self):
        """A step has ended, if there was an update; whether there is time for another."""
        self.lap("other")
        if not self._has_updated:
            return True
        self._has_updated = False
        goes_on = super().step()
        self._is_over = not goes_on
        return goes_on

    def _watched(self, loader, iterate):
        """The loader's iterator. Of a data set with ``validates`` it evaluates."""
        if getattr(loader.dataset, "validates", False):
            self.lap(self._between())
            self._evaluates = True
            return iterate(loader)
        self._fetch_begins()
        batches = iterate(loader)
        self.lap("data")
        batches = chain(batches, filter(lambda _: self.lap("data"), (None,)))  # a last look that finds no batch
        return map(itemgetter(1), zip(iter(self._fetch_begins, 0), batches, iter(self._fetch_ends, 0), strict=False))

    def _between(self):
        """The part that ends outside all others: before the backward pass forward, after it other."""
        return "other" if self._has_gradients else "forward"

    def _fetch_begins(self):
        self.evaluated()

    def _fetch_ends(self):
        self.lap("data")
        self._has_gradients = False

    def _await_gradient(self, output):
        loss = output["loss"] if isinstance(output, dict) else output
        if loss.requires_grad:
            loss.register_hook(lambda _: self.lap("forward"))

    def _gradient_is_there(self):
        self.lap("backward")
        self._has_gradients = True

    def _update_ends(self):
        self.lap("optimizer")
        self._has_updated = True
