"""What holds the lines of a piece of work: a function, a class whose instance is called, a mixin of such a class."""

from __future__ import annotations

from collections.abc import Sequence

from tests.random_loops.loops import indented
from tests.random_loops.plan import SIDE_PLACES, Piece
from tests.random_loops.works import MODEL_WORKS, SIDE_WORKS, WORKS, Work, function_of


def work_of(piece: Piece) -> Work:
    """What it does."""
    if piece.place in SIDE_PLACES:
        return SIDE_WORKS[piece.work]
    return (MODEL_WORKS if piece.place == "model" else WORKS)[piece.work]


def defined(piece: Piece, name: str) -> list[list[str]]:
    """Blocks after which ``name(x, amount)`` does the work."""
    argument = "model" if piece.place in SIDE_PLACES else "x"
    of_class = f"self, {argument}"
    kind = "".join(word.capitalize() for word in name.split("_"))
    match piece.home:
        case "object":
            call = function_of("__call__", work_of(piece), of_class, piece.name)
            return [[f"class {kind}:", *indented(call)], [f"{name} = {kind}()"]]
        case "mixin":
            body = function_of(name, work_of(piece), of_class, piece.name)
            call = [f"def __call__({of_class}, amount):", f"    return self.{name}({argument}, amount)"]
            mixin = [f"class {kind}Mixin:", *indented(body)]
            return [mixin, [f"class {kind}({kind}Mixin):", *indented(call)], [f"{name} = {kind}()"]]
    return [function_of(name, work_of(piece), argument, piece.name)]


def tops(pieces: Sequence[Piece], imports: set[str]) -> list[str]:
    """The lines at the top of the module that their work needs; those that import are added to ``imports``."""
    lines = list(dict.fromkeys(line for piece in pieces for line in work_of(piece).setup))
    imports |= {line for line in lines if line.startswith("import ")}
    return [line for line in lines if line not in imports]


def imported(pieces: Sequence[Piece], module: str, names: dict[str, str]) -> list[str]:
    """The import of those that another module holds."""
    return [f"from {module} import {', '.join(sorted(names[piece.name] for piece in pieces))}"] if pieces else []
