"""Gradients that a backward pass computes and no optimizer holds: counted once, some steps in."""

import sys
import weakref
from typing import Any, Callable, Dict, List, Tuple

from ..torch_compat.unobserved import read, unobserved
from . import optimizer_facts
from .precision import PRODUCTS, followed_by, graph_behind

#: Most nodes of a graph that are walked, 1 us each.
NODES_LIMIT = 4096

_found: Dict[str, Any] = {}  # empty: they are not counted yet
#: Of parameters that no optimizer holds, and how often each had been written to: one that is later has another user.
_versions: List[Tuple[Callable[[], Any], int]] = []


def forget() -> None:
    """Begin anew: optimizers have come, or in a forked child all of it is its parent's."""
    _found.clear()
    _versions.clear()


def facts() -> Dict[str, Any]:
    """``{"unused_gradients": [62, 64, 40, 42]}``: tensors and all of them; inputs of products, as below, and all."""
    with unobserved():
        known = ((reference(), version) for reference, version in _versions)
        is_written = any(tensor is not None and read(tensor, "_version") != version for tensor, version in known)
    return {} if is_written else dict(_found)


def count(outputs: Any) -> None:
    """Count them in the graph behind the outputs of a backward pass, if all of it is seen and all optimizers are known.

    ::

        stem -> block -> head -> loss     an optimizer holds the head's parameters alone: no gradient that the products
                                          of stem and block pass on leads to one that it holds

    An optimizer whose parameters are not in this graph may hold copies of those that are.
    """
    held = optimizer_facts.held()
    if _found or not held:
        return
    _found["unused_gradients"] = None
    graph = graph_behind(outputs, NODES_LIMIT)
    if len(graph) >= NODES_LIMIT:
        return
    with unobserved():
        leaves = {node: node.variable for node in graph if type(node).__name__ == "AccumulateGrad"}
        in_graph, taken = set(map(id, leaves.values())), set().union(*held)
        plain = sys.modules["torch.nn.parameter"].Parameter
        ours = {node for node, leaf in leaves.items() if type(leaf) is not plain or id(leaf) in taken}
        unheld = [leaf for node, leaf in leaves.items() if node not in ours]
        _versions.extend((weakref.ref(leaf), read(leaf, "_version")) for leaf in unheld)
    if not unheld or not any(each and each <= in_graph for each in held):
        return
    waiting = list(ours)
    while waiting:
        above = [each for each in graph[waiting.pop()] if each not in ours]
        ours.update(above)
        waiting.extend(above)
    inputs = [each for node in graph if type(node).__name__ in PRODUCTS for each in followed_by(node)]
    unused = sum(each not in ours for each in inputs)
    _found["unused_gradients"] = [len(unheld), len(leaves), unused, len(inputs)]
