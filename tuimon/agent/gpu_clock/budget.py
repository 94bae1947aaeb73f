"""The cost that the GPU clock may have for the training."""

#: At most one part in this many of the training's time: 0.1 %, so that steps of 100 ms and more can all be timed.
TIME_PARTS = 1000
#: About how many steps their mean length is taken over.
_MEAN_STEPS = 8


class Budget:
    """A debt that each step pays off a little; new costs are allowed while it is no more than a mean step pays.

    In steps of 4 ms each step pays 4 us: after a cost of 40 us the next is allowed nine steps later. Nothing is saved
    up. If long and short steps alternate, a short one's debt does not keep the long one after it from being timed.
    """

    def __init__(self, now_ns: int) -> None:
        self._debt_ns = 0
        self._step_began_ns = now_ns
        self.step_ns = 0  # how long the latest step took
        self.mean_step_ns = 0

    @property
    def is_paid(self) -> bool:
        """True if next to nothing is owed."""
        return self._debt_ns <= self.mean_step_ns // TIME_PARTS

    def begin_step(self, now_ns: int, count: int = 1) -> bool:
        """Begin a step, ``count`` steps after the last that was begun here; returns ``is_paid``."""
        self.step_ns = (now_ns - self._step_began_ns) // count
        self.mean_step_ns += (self.step_ns - self.mean_step_ns) // _MEAN_STEPS if self.mean_step_ns else self.step_ns
        self._step_began_ns = now_ns
        self._debt_ns = max(0, self._debt_ns - count * self._payment_ns())
        return self.is_paid

    def steps_owed(self) -> int:
        """How many steps it takes until all is paid."""
        return self._debt_ns // max(1, self._payment_ns())

    def spend(self, cost_ns: int) -> None:
        """Owe what something has cost."""
        self._debt_ns += cost_ns

    def _payment_ns(self) -> int:
        return self.step_ns // TIME_PARTS
