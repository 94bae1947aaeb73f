"""``python -m tests.truth KIND [NAME ...]``: one kind of experiment, as a table."""

import argparse
import sys
from typing import Any

from tests.truth.causes import Causes
from tests.truth.diff import Diff
from tests.truth.gain import Gain
from tests.truth.hang import Hang
from tests.truth.inject import Inject
from tests.truth.kind import Kind, run
from tests.truth.loops import Loops
from tests.truth.pairs import Pairs
from tests.truth.programs import Leaks, Scenarios, Wild
from tests.truth.rank import Rank

KINDS: dict[str, type[Kind[Any, Any]]] = {
    "causes": Causes,
    "diff": Diff,
    "gain": Gain,
    "hang": Hang,
    "inject": Inject,
    "leaks": Leaks,
    "loops": Loops,
    "pairs": Pairs,
    "rank": Rank,
    "scenarios": Scenarios,
    "wild": Wild,
}


def main(argv: list[str]) -> int:
    """Run the kind that is named first."""
    kinds = "\n".join(f"  {name:<10} {type_.__doc__}" for name, type_ in sorted(KINDS.items()))
    parser = argparse.ArgumentParser(
        prog="python -m tests.truth",
        usage="%(prog)s KIND [NAME ...] [options]",
        description=f"{__doc__}\n\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=sorted(KINDS), metavar="KIND", help="KIND --help has its options")
    kind = parser.parse_args(argv[:1] or ["--help"]).kind
    return run(KINDS[kind](), kind, argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
