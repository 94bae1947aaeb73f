"""Ids of processes and threads on several nodes, kept apart by the number of the node in the upper bits.

Ids of node 0 are the plain ones, so that a run on one node is unaffected. No log holds ids of other nodes: they are
made when the logs of several nodes are read as one.
"""

from __future__ import annotations

#: Bits below the node's number: enough for process ids (31) and pthread ids (addresses, 47), used by older Pythons.
_SHIFT = 48
_OWN = (1 << _SHIFT) - 1


def id_on_node(node: int, own: int) -> int:
    """The id in a Session of the process or thread that has the id ``own`` on a node."""
    return node << _SHIFT | own


def node_of(identity: int) -> int:
    """The number of the node of an id."""
    return identity >> _SHIFT


def own_id(identity: int) -> int:
    """A process or thread id as its node knows it."""
    return identity & _OWN if identity >= 0 else identity
