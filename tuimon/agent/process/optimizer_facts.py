"""The optimizers of a training, each read once, after the first of its updates that is seen.

One that begins to step later, or that steps in turn with others, is found some hundred updates late, or not at all.
"""

import sys
import weakref
from typing import Any, Callable, Dict, List, Set, Tuple

from ..outside import attempt
from ..torch_compat.unobserved import attributes, class_attribute, has_plain_size, is_referable, read, unobserved

#: Optimizers that are described: some programs have one for each parameter.
_OPTIMIZERS_LIMIT = 4
#: Most tensors that are counted, 0.4 us each.
TENSORS_LIMIT = 8192
_NAME_CHARACTERS = 64

#: Weak references, and what is known of each; the latest last.
_known: List[Tuple[Callable[[], Any], Dict[str, Any]]] = []


def _live() -> List[Any]:
    return [known for known in (reference() for reference, _ in _known) if known is not None]


def held() -> List[Set[int]]:
    """For each optimizer the ids of the parameters that it trains; nothing where there may be more optimizers."""
    live = _live()
    with unobserved():
        return [
            {id(each) for group in parameter_groups(known) for each in group["params"] if read(each, "requires_grad")}
            for known in (live if len(live) < _OPTIMIZERS_LIMIT else ())
        ]


def is_new(optimizer: Any) -> bool:
    """True if this optimizer is not described yet, and there is room for it."""
    live = _live()
    return len(live) < _OPTIMIZERS_LIMIT and not any(known is optimizer for known in live)


def note(optimizer: Any) -> bool:
    """Describe an optimizer that has just made an update, if it is new; whether it was."""
    if not is_new(optimizer) or not is_referable(optimizer):
        return False
    gone = next((at for at, (known, _) in enumerate(_known) if known() is None), None)
    if len(_known) >= _OPTIMIZERS_LIMIT and gone is not None:
        del _known[gone]
    described: Dict[str, Any] = {}
    _known.append((weakref.ref(optimizer), described))
    attempt(describe, optimizer, described)  # of one of a kind of its own, what has been found is kept
    return True


def facts() -> Dict[str, Any]:
    """``{"optimizers": [{"name": "AdamW", "package": "torch", "fused": False, ..., "tensors": 148}, ...]}``."""
    described = [dict(each) for _, each in _known if each]
    return {"optimizers": described} if described else {}


def forget() -> None:
    """Begin anew: in a forked child the optimizers are those of its parent."""
    _known.clear()


def describe(optimizer: Any, described: Dict[str, Any]) -> None:
    """Fill in one fact after the other, so that an error leaves those before it. No device is asked."""
    kind = type(optimizer)
    described["name"] = str(kind.__name__)[:_NAME_CHARACTERS]
    described["package"] = str(kind.__module__).partition(".")[0][:_NAME_CHARACTERS]
    groups = parameter_groups(optimizer)
    if not groups:
        return
    if type(groups[0].get("fused")) is bool:
        described["fused"] = groups[0]["fused"]
    described["groups"] = len(groups)
    parameters = [parameter for group in groups for parameter in group["params"]]
    if len(parameters) > TENSORS_LIMIT:
        return
    with unobserved():
        trained = [parameter for parameter in parameters if read(parameter, "requires_grad")]
        described["tensors"] = len(trained)
        if all(map(has_plain_size, trained)):
            described["elements"] = sum(read(parameter, "numel") for parameter in trained)


def parameter_groups(optimizer: Any) -> List[Dict[str, Any]]:
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
