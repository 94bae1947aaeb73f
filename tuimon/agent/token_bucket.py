"""A token bucket for what timing costs: the markers have one, and the GPU clock."""


class TokenBucket:
    """Steps pay for timing: each pays one part in ``parts`` of the mean step.

    A step of 4 ms pays 4 us if that is a thousandth: ten of them pay for what costs 40 us. They pay by their mean: in a
    slow minute no more of them are timed than in another, and a short one's debt keeps no long one from being timed.
    """

    def __init__(self, parts: int, rounds: int, owed_ns: int) -> None:
        """``rounds``: calls of ``pass_steps`` that the mean is of; ``owed_ns``: the most. Nothing is saved up."""
        self.mean_ns = 0  # how long a step takes
        self.steps = self.now_ns = 0  # by the latest call of ``pass_steps``
        self._parts, self._most_rounds = parts, rounds
        self._owed_ns = owed_ns
        self._tokens_ns = 0  # below 0: what is owed
        self._rounds = -1  # mostly warm-up

    @property
    def is_paid(self) -> bool:
        """True if no more is owed than a step pays."""
        return self._tokens_ns >= -(self.mean_ns // self._parts)

    def pass_steps(self, steps: int, now_ns: int) -> None:
        """So many steps have passed by now, all counted."""
        count, took_ns = steps - self.steps, now_ns - self.now_ns
        self.steps, self.now_ns = steps, now_ns
        self._rounds = min(self._rounds + 1, self._most_rounds)
        if self._rounds:
            self.mean_ns += (took_ns // max(1, count) - self.mean_ns) // self._rounds
        tokens_ns = self._tokens_ns + count * self.mean_ns // self._parts
        self._tokens_ns = min(0, max(tokens_ns, -self._owed_ns))

    def spend(self, cost_ns: int) -> None:
        """Owe what something has cost."""
        self._tokens_ns -= cost_ns

    def steps_owed(self) -> int:
        """How many steps it takes until all is paid; 0 before their mean is known."""
        return -self._tokens_ns * self._parts // self.mean_ns if self.mean_ns > 0 else 0
