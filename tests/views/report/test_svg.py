from io import StringIO
from xml.etree import ElementTree

from rich.console import Console

from tuimon.views.report.write import standalone_svg


def _picture() -> str:
    console = Console(width=40, record=True, file=StringIO())
    console.print("one [red]two  three[/red] <four>", markup=True)
    console.print("five")
    return console.export_svg(title="a title")


def test_no_font_comes_from_elsewhere() -> None:
    svg = _picture()
    assert "https://cdnjs" in svg
    assert "url(http" not in standalone_svg(svg).replace('"', "")
    assert "@font-face" not in standalone_svg(svg)


def test_words_places_and_colours_stay() -> None:
    before, after = ElementTree.fromstring(_picture()), ElementTree.fromstring(standalone_svg(_picture()))

    def pieces(root: ElementTree.Element) -> list[tuple[str, str | None, str | None]]:
        found = [
            (node.text or "", node.get("x"), node.get("y")) for node in root.iter("{http://www.w3.org/2000/svg}text")
        ]
        return [piece for piece in found if piece[0].strip("\N{NO-BREAK SPACE}\n ")]

    assert "two\N{NO-BREAK SPACE}\N{NO-BREAK SPACE}three" in [text for text, _, _ in pieces(after)]
    assert pieces(after) == pieces(before)
    assert len(list(after.iter())) < len(list(before.iter()))
