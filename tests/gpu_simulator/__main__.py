"""``python -m tests.gpu_simulator [NAME ...]``: recorded trainings under tuimon, the truth beside its report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.gpu_simulator.recorded_verdict import PhaseRow, Verdict, verdict
from tests.gpu_simulator.recording import names

#: Bounds as wide as this still say something.
_NARROW = 0.20
_HEAD = f"{'':24}{'true: span':>11}{'starved':>9}{'held up':>9}{'dev idle':>9}   {'ours: span':>11}{'idle':>14}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_simulator", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; default: all")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave this one out")
    parser.add_argument("--no-counters", action="store_true", help="without NVML beside the markers")
    args = parser.parse_args()
    verdicts = [
        verdict(name, counters=not args.no_counters) for name in args.names or names() if name not in args.without
    ]
    print("shares of the step's time on the GPU, in %; idle: the compute stream has nothing to do\n")
    print(_HEAD)
    for found in verdicts:
        print("\n".join(_lines(found)))
    print(_totals(verdicts))


def _lines(found: Verdict) -> list[str]:
    whole = (1.0, found.starved, found.held_up, found.device_idle)
    mark = "" if found.is_right else f"  ! expected {' or '.join(found.expected)}"
    lines = [f"\n{found.name:24}{_shares(*whole)}   {'':>11}{_range(found.at_least, found.at_most):>14}"]
    lines += [_line(phase) for phase in found.phases]
    lines.append(f"  verdict: {found.first}{mark}")
    lines += [f"    {finding.severity}: {finding.headline}" for finding in found.findings]
    return lines


def _line(phase: PhaseRow) -> str:
    mark = {True: "", False: "  !", None: "  ?"}[phase.holds]
    true = _shares(phase.span, phase.starved, phase.held_up, phase.device_idle)
    ours = "-" if phase.our_span is None else f"{100 * phase.our_span:.1f}"
    return f"  {phase.name:22}{true}   {ours:>11}{_range(phase.at_least, phase.at_most):>14}{mark}"


def _shares(span: float, *others: float) -> str:
    return f"{100 * span:11.1f}" + "".join(f"{100 * share:9.1f}" for share in others)


def _range(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{100 * low:.1f}..{100 * high:.1f}"


def _totals(verdicts: Sequence[Verdict]) -> str:
    phases = [phase for found in verdicts for phase in found.phases]
    widths = [found.width for found in verdicts if found.width is not None]
    false_praise = [found.name for found in verdicts if found.waits and found.calls_it_busy]
    spans = [abs(p.our_span - p.span) for p in phases if p.our_span is not None]
    return "\n".join(
        (
            "",
            f"phases whose idle time is within the bounds  {sum(p.holds is True for p in phases)} of {len(phases)}",
            f"phase spans, largest error                   {100 * max(spans, default=0.0):.2f} points",
            f"bounds at most {100 * _NARROW:.0f} points wide               "
            f"{sum(width <= _NARROW + 5e-4 for width in widths)} of {len(verdicts)} recordings"
            f" ({', '.join(f'{100 * width:.0f}' for width in widths)})",
            f"first verdict right                          {sum(v.is_right for v in verdicts)} of {len(verdicts)}",
            f"'as it should be' where something waits      {len(false_praise)} {' '.join(false_praise)}".rstrip(),
        )
    )


if __name__ == "__main__":
    main()
