"""A process that has used up its file handles."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_handles() -> Iterator[None]:
    """Nothing can be opened in this process; what is open stays."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
