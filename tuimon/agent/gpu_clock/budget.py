"""What the GPU clock may cost the training."""

#: Of the time, one part in so many.
SHARE = 1000
#: A turn of the loop on average, however long it is.
TURN_NS = 12_000


class Budget:
    """Every turn pays a little of what was spent; when all is paid, more may be spent. Nothing is saved up."""

    def __init__(self, now_ns: int) -> None:
        self._debt_ns = 0
        self._begun_ns = now_ns
        self.turn_ns = 0  # how long turns take

    @property
    def paid(self) -> bool:
        """Whether nothing is owed."""
        return self._debt_ns <= 0

    def turn(self, now_ns: int, count: int = 1) -> bool:
        """Another turn of the loop begins, so many after the one before; returns ``paid``."""
        self.turn_ns = (now_ns - self._begun_ns) // count
        self._begun_ns = now_ns
        self._debt_ns = max(0, self._debt_ns - count * self._allowed_ns())
        return self.paid

    def turns_owed(self) -> int:
        """In so many turns all is paid."""
        return self._debt_ns // max(1, self._allowed_ns())

    def _allowed_ns(self) -> int:
        return min(TURN_NS, self.turn_ns // SHARE)

    def spend(self, cost_ns: int) -> None:
        """It took so long."""
        self._debt_ns += cost_ns
