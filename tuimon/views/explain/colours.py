"""Code divided into tokens of a few kinds, for views that colour it themselves."""

from __future__ import annotations

from collections.abc import Iterator

#: How the name of a token's type begins, and its kind: the first that fits.
_KINDS = (
    ("Token.Comment", "comment"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Keyword", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "name"),
    ("Token.Name.Builtin", "name"),
)


def code_tokens(code: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """The lines of code, each as pairs (text, kind): comment, keyword, string, number, name, or nothing."""
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  (milliseconds that the screen's start is spared)

    row: list[tuple[str, str]] = []
    for token, text in get_lexer_by_name(language).get_tokens(code):
        *whole, rest = text.split("\n")
        kind = next((kind for name, kind in _KINDS if str(token).startswith(name)), "")
        for piece in whole:
            yield [*row, (piece, kind)] if piece else row
            row = []
        if rest:
            row.append((rest, kind))
    if row:
        yield row
