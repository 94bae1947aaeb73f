"""The base of sheets that show a running training."""

from __future__ import annotations


class Renewed:
    """A screen that is drawn anew with every tick while it is open."""

    def update(self) -> None:
        """Show what is known now."""
        raise NotImplementedError
