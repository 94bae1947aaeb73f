"""``python -m tests.inject_stress N``: N injections and withdrawals over all shapes, as a table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.agent.programs import environment
from tests.inject_stress.stress import SHAPES, Trial, expected, rings_folder, run_trial, starting

#: Injections into one training.
_EACH = 10


def main() -> int:
    """Run and print; 1 when a training was harmed or an injection failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.inject_stress", description=__doc__)
    parser.add_argument("n", type=int, nargs="?", default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=sys.executable, help="of the trainings, with torch")
    parser.add_argument("--path", default="", help="PYTHONPATH of the trainings")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parsed = parser.parse_args()
    rings_folder(Path(tempfile.mkdtemp(prefix="tuimon-stress-")))
    env = environment(None, path=parsed.path)
    start = starting(parsed.python, env)
    rounds = max(1, round(parsed.n / len(parsed.shapes) / _EACH))
    each = max(1, round(parsed.n / len(parsed.shapes) / rounds))
    done: dict[str, list[tuple[Trial, int, int]]] = {shape: [] for shape in parsed.shapes}
    for number in range(rounds):
        for shape in parsed.shapes:
            found = run_trial(shape, SHAPES[shape], each, parsed.seed + number, start)
            done[shape].append(found)
            print(f"{shape}: {each} injections, {found[1]} steps, faults: {found[0].faults or 'none'}", file=sys.stderr)
    digests = expected(max(steps for trials in done.values() for _, steps, _ in trials), parsed.python, env)
    return _table(done, digests)


def _table(done: dict[str, list[tuple[Trial, int, int]]], digests: list[int]) -> int:
    print("shape       trainings injections  same result  faults  first marker p50/p99 s  pause p50/p99 ms  control ms")
    failed = False
    for shape, trials in [*done.items(), ("all", [trial for found in done.values() for trial in found])]:
        same = sum(steps > 0 and digests[steps - 1] == digest for _, steps, digest in trials)
        faults = [fault for trial, _, _ in trials for fault in trial.faults]
        markers, pauses, controls = (
            sorted(value for trial, _, _ in trials for value in getattr(trial, name))
            for name in ("first_marker_s", "pause_s", "control_s")
        )
        failed = failed or bool(faults) or same < len(trials)
        print(
            f"{shape:12}{len(trials):8}{len(markers):11}{same:10}/{len(trials):<4}{len(faults):6}"
            f"{_at(markers, 0.5):14.2f} /{_at(markers, 0.99):6.2f}"
            f"{_at(pauses, 0.5) * 1e3:14.0f} /{_at(pauses, 0.99) * 1e3:5.0f}"
            f"{_at(controls, 0.5) * 1e3:9.0f} /{_at(controls, 0.99) * 1e3:5.0f}"
        )
    return int(failed)


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


sys.exit(main())
