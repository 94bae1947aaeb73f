"""A tiny notation for marker sequences: ``fetch:5 wait:3 bwd:4 opt:2`` with times in milliseconds."""

from tuimon.agent.ring import layout
from tuimon.sources.markers.phases import PhaseMachine
from tuimon.sources.markers.steps import StepFinder

MS = 1_000_000
_PAIRS = {
    "fetch": layout.FETCH_BEGIN,
    "stop": layout.FETCH_BEGIN,
    "iter": layout.ITER_BEGIN,
    "bwd": layout.BACKWARD_BEGIN,
    "opt": layout.OPTIMIZER_BEGIN,
}


def markers(script: str, start_ns: int = 0) -> list[tuple[int, int, int, int]]:
    """(time_ns, kind, flag, value) of a script.

    ``fetch@2:5`` names iterator 2; ``stop:1`` is a fetch that finds the end; ``opt( … )`` and ``bwd( … )`` enclose;
    ``step`` is tuimon.step().
    """
    now = start_ns
    out = []
    enclosing = []
    for token in script.split():
        if token == ")":
            out.append((now, enclosing.pop() + 1, 0, 0))
            continue
        if token == "step":
            out.append((now, layout.STEP, 0, 0))
            continue
        if token.endswith("("):
            enclosing.append(_PAIRS[token[:-1]])
            out.append((now, enclosing[-1], 0, 0))
            continue
        name, _, ms = token.partition(":")
        name, _, iterator = name.partition("@")
        duration = int(float(ms) * MS)
        if name == "wait":
            now += duration
            continue
        kind, value = _PAIRS[name], int(iterator or 1)
        out.append((now, kind, 0, value))
        now += duration
        out.append((now, kind + 1, 1 if name == "stop" else 0, value))
    return out


def play(script: str, repeat: int = 1, finish: bool = True) -> StepFinder:
    """Feed a script, ``repeat`` times over, to a machine and finder of its own."""
    finder = StepFinder()
    machine = PhaseMachine(finder)
    for marker in markers(" ".join([script] * repeat)):
        machine.feed(*marker)
    if finish:
        finder.finish()
    return finder


def ms(phases: dict[str, int]) -> dict[str, float]:
    """Phases in milliseconds, without empty ones."""
    return {name: ns / MS for name, ns in sorted(phases.items()) if ns}
