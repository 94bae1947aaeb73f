"""What the sheets that show a running training have in common."""

from __future__ import annotations


class Renewed:
    """A screen that is drawn anew with every tick while it is open."""

    def update(self) -> None:
        """Show what is known now."""
        raise NotImplementedError
