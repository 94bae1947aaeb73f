"""The verdicts on recorded runs are the accepted ones: a change of any is seen, and reviewed like a snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import verdicts
from tests.recorded_logs import log_path
from tests.verdicts import Run, corpora, difference, text_of

CORPORA = corpora()


@pytest.mark.parametrize("name", CORPORA)
def test_verdicts_are_as_accepted(name: str) -> None:
    found = difference(name, text_of(CORPORA[name]))
    assert not found, f"review this, then `make verdicts VERDICTS_ARGS=--accept`:\n{found}"


def test_each_accepted_file_is_of_a_corpus_that_has_runs() -> None:
    assert {path.stem for path in verdicts.ACCEPTED.iterdir()} == set(CORPORA)
    assert all(len(runs) >= 8 for runs in CORPORA.values())


def test_another_verdict_is_shown_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_path("graph_collate")
    run = Run("graph_collate", lambda: verdicts.read_log(str(log)))
    monkeypatch.setattr(verdicts, "ACCEPTED", tmp_path)
    monkeypatch.setattr(verdicts, "corpora", lambda: {"some": [run]})
    (tmp_path / "some.txt").write_text(text_of([run]).replace("slow_collate", "slow_item"))
    assert verdicts.main([]) == 1
    shown = capsys.readouterr().out
    assert "-  critical input_bound/slow_item, 84 % of the step" in shown
    assert "+  critical input_bound/slow_collate, 84 % of the step" in shown
    assert verdicts.main(["--accept"]) == 0
    capsys.readouterr()
    assert verdicts.main([]) == 0
    assert capsys.readouterr().out == "some: 1 runs, as accepted\n"
