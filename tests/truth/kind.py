"""A kind of experiment, and the runner of all kinds: cases are tried, judged, and shown as one table."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from tests.truth.running import Failed

DATA = Path(__file__).parents[1] / "data"
Case = TypeVar("Case")
Row = TypeVar("Row")


class Column(NamedTuple):
    """A column of a table; ``text`` gives a row's cell, None: unknown. A width below 0 aligns to the right."""

    head: str
    width: int
    text: Callable[[Any], object]


class Kind(Generic[Case, Row]):
    """An experiment: where its programs are, how one is run and judged, and which columns its table has.

    The class's docstring is its help.
    """

    columns: ClassVar[Sequence[Column]]
    keeps: ClassVar[tuple[str, Any] | None] = None  # the file of tests/data that ``--record`` keeps rows in, their type
    seconds: ClassVar[float] = 20.0  # of each training

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Its own options, beside those that all have."""

    def cases(self, args: argparse.Namespace) -> Sequence[Case]:
        """Its cases, of which those are tried whose names are asked for."""
        raise NotImplementedError

    def judged(self, case: Case, args: argparse.Namespace) -> Iterable[Row]:
        """Rows of one case, whose logs belong into ``args.folder``. Raises Failed."""
        raise NotImplementedError

    def names(self) -> Iterable[str]:
        """Of all its cases, those included that cannot run here."""
        raise NotImplementedError

    def results(self) -> dict[str, Row]:
        """The rows that are kept, by the names of their cases."""
        assert self.keeps is not None
        path, row_type = DATA / self.keeps[0], self.keeps[1]
        lines = path.read_bytes().splitlines() if path.exists() else []
        return {row.name: row for row in (msgspec.json.decode(line, type=row_type) for line in lines)}

    def is_recorded(self, case: Case) -> bool:
        """True if ``tests/data`` has what ``--record`` keeps of it."""
        return case.name in self.results()

    def record(self, case: Case, rows: Sequence[Row], args: argparse.Namespace) -> None:
        """Keep a case in ``tests/data``, and no longer those that there are no more."""
        assert self.keeps is not None
        found = self.results() | {row.name: row for row in rows}
        kept = (found[name] for name in sorted(found.keys() & set(self.names())))
        (DATA / self.keeps[0]).write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in kept))

    def totals(self, rows: Sequence[Row]) -> Iterable[str]:
        return ()

    def passed(self, rows: Sequence[Row]) -> bool:
        """True if these rows, of cases that have all run, are as they must be."""
        return True

    @property
    def can_record(self) -> bool:
        """True if it has something to keep in ``tests/data``."""
        return self.keeps is not None or type(self).record is not Kind.record


def run(kind: Kind[Any, Any], name: str, argv: Sequence[str]) -> int:
    """Try the cases that the arguments choose; the exit code is 1 if one failed or is not as it must be."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.truth {name}", description=type(kind).__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names, or beginnings of names; default: all")
    parser.add_argument("--seconds", type=float, default=kind.seconds, help="of each training (default %(default)s)")
    parser.add_argument(
        "--keep", metavar="DIR", help="keep logs and measurements there; what is there is not run again"
    )
    if kind.can_record:
        parser.add_argument("--record", action="store_true", help="keep what the tests and docs need in tests/data")
        parser.add_argument("--missing", action="store_true", help="only cases of which tests/data has nothing")
    kind.add_options(parser)
    args = parser.parse_args(argv)
    cases = chosen(kind.cases(args), args.names)
    if not cases:
        parser.error(f"no case is called {' or '.join(args.names) or 'anything'}")
    if kind.can_record and args.missing:
        cases = [case for case in cases if not kind.is_recorded(case)]
        if not cases:
            print("nothing is missing")
            return 0
    print(head(kind.columns), flush=True)
    with tempfile.TemporaryDirectory(prefix="tuimon-truth-") as temporary:
        args.folder = Path(args.keep or temporary)
        args.folder.mkdir(parents=True, exist_ok=True)
        found = [_tried(kind, case, args) for case in cases]
    rows = [row for each in found if each is not None for row in each]
    print("", *kind.totals(rows), sep="\n")
    return 0 if None not in found and kind.passed(rows) else 1


def _tried(kind: Kind[Case, Row], case: Case, args: argparse.Namespace) -> list[Row] | None:
    """The rows of one case, printed as they come; None if it failed."""
    rows = []
    try:
        for row in kind.judged(case, args):
            rows.append(row)
            print(line(kind.columns, row), flush=True)
        if kind.can_record and args.record:
            kind.record(case, rows, args)
    except Failed as failed:
        print(f"{case.name}: {failed}", file=sys.stderr, flush=True)
        return None
    return rows


def chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases of these names; a name that no case has stands for all whose names begin so."""
    known = {case.name for case in cases}
    exact, begin = set(names) & known, tuple(set(names) - known)
    return [case for case in cases if not names or case.name in exact or case.name.startswith(begin)]


def head(columns: Sequence[Column]) -> str:
    """The first line of a table."""
    return _joined(columns, [column.head or " " for column in columns])


def line(columns: Sequence[Column], row: object) -> str:
    """A row of a table."""
    return _joined(columns, [column.text(row) for column in columns])


def _joined(columns: Sequence[Column], cells: Iterable[object]) -> str:
    texts = ("-" if cell in (None, "") else str(cell) for cell in cells)
    return "  ".join(
        f"{text:<{column.width}}" if column.width > 0 else f"{text:>{-column.width}}"
        for text, column in zip(texts, columns, strict=True)
    ).rstrip()


def marked(cell: object, is_right: bool | None) -> str | None:
    """The cell of a judged value: ``!`` marks what is wrong."""
    return f"{'-' if cell in (None, '') else cell} !" if is_right is False else str(cell) if cell is not None else None


def times(value: float | None) -> str | None:
    """``1.20x``."""
    return None if value is None else f"{value:.2f}x"


def percent(ratio: float | None) -> str | None:
    """``20 %``."""
    return None if ratio is None else f"{100 * ratio:.0f} %"


def whole_seconds(value: float | None) -> str | None:
    """``5 s``."""
    return None if value is None else f"{value:.0f} s"


def of(found: Iterable[bool | None]) -> str:
    """``3 of 4``: how many are right of those that are known."""
    known = [each for each in found if each is not None]
    return f"{sum(known)} of {len(known)}"
