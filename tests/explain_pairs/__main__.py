"""``python -m tests.explain_pairs``: run the code pairs that run on a CPU, for real, and judge all pairs.

With ``--record`` the logs are kept for the tests.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from tests.explain_pairs.pairs import Pair, When, all_pairs
from tests.explain_pairs.recorded import is_recorded, log_of, record, records_of
from tests.explain_pairs.simulated import simulated_records

WHENS: tuple[When, When] = ("before", "after")


def main() -> int:
    """Print a line for each side of each pair; 1 where one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.explain_pairs", description=__doc__)
    parser.add_argument("names", nargs="*", help="pairs, as input_bound_0; without, all")
    parser.add_argument("--record", action="store_true", help="keep the logs in tests/data/pairs")
    parser.add_argument("--missing", action="store_true", help="only those that have no log there")
    parsed = parser.parse_args()
    wrong = 0
    for pair in all_pairs():
        for when in WHENS:
            if parsed.names and pair.name not in parsed.names:
                continue
            if parsed.missing and (not is_recorded(pair, when) or log_of(pair, when).exists()):
                continue
            wrong += not _tried(pair, when, keep=parsed.record)
    return min(1, wrong)


def _tried(pair: Pair, when: When, *, keep: bool) -> bool:
    if is_recorded(pair, when):
        with tempfile.TemporaryDirectory() as folder:
            log = log_of(pair, when) if keep else Path(folder) / "run.jsonl.zst"
            try:
                record(pair, when, log)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"WRONG  {pair.name} {when}: {error}", flush=True)
                return False
            finding = pair.finding(records_of(pair, log))
    else:
        finding = pair.finding(simulated_records(pair, when))
    right = (finding is not None) == (when == "before")
    print(
        f"{'right' if right else 'WRONG'}  {pair.name:<24} {when:<6}  {finding.headline if finding else '-'}",
        flush=True,
    )
    return right


if __name__ == "__main__":
    raise SystemExit(main())
