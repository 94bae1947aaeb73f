"""The program's optimizers: whether there is one, before that has made a step; the groups of parameters of one."""

import sys
from typing import Any, Dict, List

from .unobserved import attributes, class_attribute


def groups(optimizer: Any) -> List[Dict[str, Any]]:
    """The groups of parameters that an optimizer holds; none where they are of another kind than torch's."""
    found = attributes(optimizer).get("param_groups")
    if type(found) is not list or not all(type(each) is dict and type(each.get("params")) is list for each in found):
        return []
    return found


def any_made() -> bool:
    """True if one was ever made: the first of each class wraps the class's ``step`` and marks it as hooked."""
    base = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    waiting = [] if base is None else type.__subclasses__(base)
    while waiting:
        kind = waiting.pop()
        if attributes(class_attribute(kind, "step")).get("hooked"):
            return True
        waiting.extend(type.__subclasses__(kind))
    return False
