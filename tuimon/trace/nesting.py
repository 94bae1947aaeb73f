"""Which operator each event lies in, and what an operator took itself."""

from __future__ import annotations

from array import array

from tuimon.trace.events import Events, Kind, is_python_of_user

_NONE = -1
#: Times are rounded: what ends at most this much after another, in ns, may lie in it.
_ROUNDING_NS = 1000


class Nesting:
    """The events that enclose others on their thread. An index is an event's; -1 stands for none.

    ``operator``: the innermost operator around an event. ``python``: the innermost function of the user's code, in
    traces with Python functions. ``self_ns``: of an operator, without the operators in it.

    Example, of one thread::

        |----------- aten::linear (10 us) -----------|
          |-- aten::t (2) --|    |-- aten::addmm (6) --|
                                    | cudaLaunchKernel |

    The launch lies in ``aten::addmm``, which lies in ``aten::linear``, whose ``self_ns`` is 2 us.
    """

    def __init__(self, events: Events) -> None:
        count = len(events)
        self.operator = array("i", [_NONE]) * count
        self.python = array("i", [_NONE]) * count
        self.self_ns = array("q", [0]) * count
        self._is_user = [is_python_of_user(name) for name in events.names]
        stacks: dict[int, list[tuple[int, int, int]]] = {}  # of each track: end, operator, python
        for i in range(count):
            if events.kind[i] < Kind.KERNEL:
                self._enter(events, i, stacks.setdefault(events.track[i], []))

    def _enter(self, events: Events, i: int, stack: list[tuple[int, int, int]]) -> None:
        begin_ns, end_ns = events.begin_ns[i], events.end_ns[i]
        while stack and (stack[-1][0] <= begin_ns or stack[-1][0] + _ROUNDING_NS < end_ns):
            stack.pop()
        _, operator, python = stack[-1] if stack else (0, _NONE, _NONE)
        self.operator[i], self.python[i] = operator, python
        kind = events.kind[i]
        if kind == Kind.RUNTIME:
            return
        if kind == Kind.OPERATOR:
            length_ns = end_ns - begin_ns
            self.self_ns[i] = length_ns
            if operator != _NONE:
                self.self_ns[operator] -= min(length_ns, self.self_ns[operator])
            operator = i
        elif self._is_user[events.name[i]]:
            python = i
        stack.append((end_ns, operator, python))
