"""Hot lines."""

from tests.views.tui.profile.samples import Counted, of
from tests.views.tui.texts import texts
from tuimon.views.tui.profile.hotlines import LinesView


def test_hot_lines(trainer):
    rows = texts(LinesView().draw(trainer, None, 116, 14, on_gpu=True))
    assert rows[0] == "● waits for data 62 %  ● launching 28 %  ● GPU sync 8 %  ● sleeps 2 %"
    assert rows[2:6] == [
        " self▾              total doing            line          code",
        "  62 % ██████▎       62 % waits for data   train.py:44   for x, y in loader:",
        "  14 % █▍            14 % launching        model.py:21   x = self.conv(x)",
        "  10 % █             10 % launching        train.py:55   loss.backward()",
    ]
    assert rows[-1] == "main()  62.0 % self, 62.0 % total  /home/me/project/train.py:44"


def test_the_cursor_stays_on_its_line_when_others_overtake_it(trainer):
    view = LinesView()
    view.draw(trainer, None, 116, 14, on_gpu=True)
    view.move(2)
    assert view.selected().place.line == 55
    changed = of(Counted([0, 3, 13, 14], 90, "backward"), Counted([0, 1, 6, 7, 8], 10, "data"))
    view.draw(changed, None, 116, 14, on_gpu=True)
    assert view.selected().place.line == 55
    view.draw(of(Counted([0, 1], 1, "data")), None, 116, 14, on_gpu=True)
    assert view.selected().place.line == 44


def test_scrolled_to_the_cursor():
    many = of(
        *(Counted([n], 300 - n, "none") for n in range(200)),
        places=[("m.py", n + 1, "f", f"line {n}", True) for n in range(200)],
    )
    view = LinesView()
    view.draw(many, None, 80, 14, on_gpu=True)
    view.move(100_000)
    rows = texts(view.draw(many, None, 80, 14, on_gpu=True))
    assert "line 199" in rows[-2]
    assert len(rows) == 14
