"""A token bucket for what timing costs: the markers have one, and the GPU clock."""


class TokenBucket:
    """Steps pay for timing: each pays one part in ``parts`` of the mean step.

    A step of 4 ms pays 4 us if that is a thousandth: ten of them pay for what costs 40 us. They pay by their mean: in a
    slow minute no more of them are timed than in another, and a short one's debt keeps no long one from being timed.
    """

    def __init__(self, parts: int, rounds: int, saved_ns: int, owed_ns: int) -> None:
        """``rounds``: calls of ``pass_steps`` that the mean is of; the others: most that is saved up, and owed."""
        self.mean_ns = 0  # how long a step takes
        self._parts = parts
        self._most_rounds = rounds
        self._saved_ns, self._owed_ns = saved_ns, owed_ns
        self._tokens_ns = 0  # below 0: what is owed
        self._rounds = -1  # mostly warm-up

    @property
    def is_paid(self) -> bool:
        """True if no more is owed than a step pays."""
        return self._tokens_ns >= -(self.mean_ns // self._parts)

    def pass_steps(self, count: int, took_ns: int) -> None:
        """So many steps have passed, and have taken this long together."""
        self._rounds = min(self._rounds + 1, self._most_rounds)
        if self._rounds:
            self.mean_ns += (took_ns // count - self.mean_ns) // self._rounds
        self._tokens_ns = min(self._tokens_ns + count * self.mean_ns // self._parts, self._saved_ns)

    def spend(self, cost_ns: int) -> None:
        """Owe what something has cost."""
        self._tokens_ns = max(self._tokens_ns - cost_ns, -self._owed_ns)

    def steps_owed(self) -> int:
        """How many steps it takes until all is paid."""
        return max(0, -self._tokens_ns) * self._parts // max(1, self.mean_ns)
