"""True if the program has an optimizer of torch's, before that has made a step."""

import sys

from ..outside import raised_by_us


def any_made() -> bool:
    """True if one was ever made: the first of each class wraps the class's ``step`` and marks it as hooked."""
    base = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    try:
        waiting = [] if base is None else base.__subclasses__()
        while waiting:
            cls = waiting.pop()
            if getattr(cls.__dict__.get("step"), "hooked", False):
                return True
            waiting.extend(cls.__subclasses__())
    except raised_by_us(Exception):  # classes of the program may answer as they like
        return False
    return False
