"""Keeps our frames out of the tracebacks that users see."""

import sys

#: A bare ``raise`` takes the traceback from the exception object since 3.11: only there can our frame be taken out.
HIDES_FRAMES = sys.version_info >= (3, 11)


def hide_frame(error: BaseException) -> None:
    """Remove the caller's frame, the first, from the traceback: the user sees what plain torch shows."""
    traceback = error.__traceback__
    if HIDES_FRAMES and traceback is not None:
        error.__traceback__ = traceback.tb_next
