"""Stands in for a ring's writer where there is none."""


class NoWriter:
    """Takes markers, and writes none."""

    def emit(self, kind: int, value: int = 0, flag: int = 0) -> None:
        """Nowhere to write."""
