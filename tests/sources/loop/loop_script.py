"""A tiny notation for marker sequences: ``fetch:5 wait:3 bwd:4 opt:2`` with times in milliseconds."""

from tuimon.agent.ring import layout
from tuimon.sources.loop.machine import LoopMachine
from tuimon.sources.loop.step import MarkedStretch, Step
from tuimon.sources.loop.steps import StepEnd

MS = 1_000_000
_PAIRS = {
    "fetch": layout.FETCH_BEGIN,
    "stop": layout.FETCH_BEGIN,
    "iter": layout.ITER_BEGIN,
    "over": layout.ITER_BEGIN,
    "bwd": layout.BACKWARD_BEGIN,
    "grad": layout.BACKWARD_BEGIN,
    "opt": layout.OPTIMIZER_BEGIN,
}
_VALUES = {"bwd": 0, "grad": layout.RETURNED}
_SINGLE = {"step": layout.STEP, "made": layout.OPTIMIZER_MADE}


def markers(script: str, start_ns: int = 0) -> list[tuple[int, int, int, int]]:
    """(time_ns, kind, flag, value) of a script.

    ``fetch@2:5`` names iterator 2; ``stop:1`` is a fetch that finds the end; ``grad`` is ``autograd.grad``;
    ``over`` ends an iterator that has not been exhausted;
    ``opt( … )`` and ``bwd( … )`` enclose, or raise if not closed; ``step`` is tuimon.step(); ``made`` tells that there
    is an optimizer.
    """
    now = start_ns
    out = []
    enclosing = []
    for token in script.split():
        if token == ")":
            kind, value = enclosing.pop()
            out.append((now, kind + 1, 0, value))
            continue
        if token in _SINGLE:
            out.append((now, _SINGLE[token], 0, 0))
            continue
        if token.endswith("("):
            enclosing.append((_PAIRS[token[:-1]], _VALUES.get(token[:-1], 1)))
            out.append((now, enclosing[-1][0], 0, enclosing[-1][1]))
            continue
        name, _, ms = token.partition(":")
        name, _, iterator = name.partition("@")
        duration = int(float(ms) * MS)
        if name == "wait":
            now += duration
            continue
        kind, value = _PAIRS[name], _VALUES.get(name, int(iterator or 1))
        out.append((now, kind, 0, 0 if name == "iter" else value))
        now += duration
        out.append((now, kind + 1, 1 if name == "stop" else 0, 0 if name == "over" else value))
    return out


class Played:
    """A machine that has been fed, and what has ended."""

    def __init__(self, sequence, finish: bool = True) -> None:
        self.machine = LoopMachine()
        for marker in sequence:
            if marker[1] == layout.OPTIMIZER_MADE:
                self.machine.steps.expect_optimizer()
            else:
                self.machine.feed(*marker)
        if finish:
            self.machine.steps.finish()
        self.steps: list[Step] = self.machine.steps.take_ended()
        self.eval_ns, self.eval_count = self.machine.steps.take_evaluation()

    @property
    def steps_end_at(self) -> StepEnd:
        return self.machine.steps.pieces.steps_end_at


def play(script: str, repeat: int = 1, finish: bool = True) -> Played:
    """Feed a script, ``repeat`` times over, to a machine of its own."""
    return Played(markers(f"{script} " * repeat), finish)


def other(begin_ns: int, end_ns: int) -> MarkedStretch:
    """A stretch without a phase of its own."""
    return MarkedStretch("other", begin_ns, end_ns, layout.STEP, 0, 0, None, False, False, 0)


def ms(phases: dict[str, int]) -> dict[str, float]:
    """Phases in milliseconds, without empty ones."""
    return {name: ns / MS for name, ns in sorted(phases.items()) if ns}
