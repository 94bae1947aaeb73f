"""What the GPU clock may cost the training."""

#: Of the time, one part in so many.
SHARE = 1000
#: A turn of the loop on average, however long it is.
TURN_NS = 12_000


class Budget:
    """Every turn pays a little of what was spent; when all is paid, more may be spent. Nothing is saved up."""

    def __init__(self, now_ns: int) -> None:
        self._debt_ns = 0
        self._turn_ns = now_ns

    @property
    def paid(self) -> bool:
        """Whether nothing is owed."""
        return self._debt_ns <= 0

    def turn(self, now_ns: int) -> bool:
        """Another turn of the loop begins; returns ``paid``."""
        if self._debt_ns:
            allowed_ns = min(TURN_NS, (now_ns - self._turn_ns) // SHARE)
            self._debt_ns = max(0, self._debt_ns - allowed_ns)
        self._turn_ns = now_ns
        return self.paid

    def spend(self, cost_ns: int) -> None:
        """It took so long."""
        self._debt_ns += cost_ns
