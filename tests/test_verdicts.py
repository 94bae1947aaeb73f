"""What tuimon says of recorded runs is what was accepted: a change of it is seen, and reviewed like a snapshot."""

import pytest

from tests import verdicts
from tests.diagnosis.test_cells import check_cells
from tests.recorded_logs import log_path
from tests.verdicts import Run, corpora, difference, of_corpus, said

#: All recorded runs are judged, drawn and reported at once: half a minute, and longer on a busy machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def judged():
    """All parts, and what is wrong with the cells of a run: each is folded once for both."""
    faults = {}

    def see(run, session):
        try:
            check_cells(run, session)
        except AssertionError as error:
            faults[run] = error

    return {part.file: part for part in said(see)}, faults


@pytest.fixture
def parts(judged):
    return judged[0]


def test_the_cells_of_each_run_add_up(judged):
    assert judged[1] == {}


@pytest.mark.parametrize("file", sorted(path.name for path in verdicts.ACCEPTED.iterdir()))
def test_it_is_as_accepted(file, parts):
    found = difference(parts[file])
    assert not found, f"review this, then `make verdicts VERDICTS_ARGS=--accept`:\n{found}"


def test_every_part_is_accepted_and_each_corpus_has_runs(parts):
    assert {path.name for path in verdicts.ACCEPTED.iterdir()} == set(parts)
    assert all(len(runs) >= 8 for runs in corpora().values())


def test_another_verdict_is_shown_until_it_is_accepted(tmp_path, monkeypatch, capsys):
    log = log_path("graph_collate")
    parts = list(of_corpus("some", [Run("graph_collate", lambda: verdicts.read_records(str(log)))]))
    monkeypatch.setattr(verdicts, "ACCEPTED", tmp_path)
    monkeypatch.setattr(verdicts, "said", lambda: parts)
    assert verdicts.main(["--accept"]) == 0
    (tmp_path / "some.txt").write_text(parts[0].text.replace("slow_collate", "slow_item"))
    capsys.readouterr()
    assert verdicts.main([]) == 1
    shown = capsys.readouterr().out
    assert "-  critical input_bound/slow_item, 84 % of the step" in shown
    assert "+  critical input_bound/slow_collate, 84 % of the step" in shown
    assert verdicts.main(["--accept"]) == 0
    capsys.readouterr()
    assert verdicts.main([]) == 0
    assert (
        capsys.readouterr().out == "some.txt: as accepted\nsome.reports.txt: as accepted\nsome.json.gz: as accepted\n"
    )
