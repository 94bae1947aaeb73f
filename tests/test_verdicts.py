"""What tuimon says of recorded runs is what was accepted: a change of it is seen, and reviewed like a snapshot."""

import pytest

from tests import facts, verdicts
from tests.recorded_logs import log_path
from tests.verdicts import Run, corpora, difference, of_corpus, said

#: All recorded runs are judged, drawn and reported at once: half a minute, and longer on a busy machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def noted():
    """All parts, and the facts that were read for them."""
    with facts.noting() as read:
        parts = {part.file: part for part in said()}
        facts.show_the_rest()
    return parts, read


@pytest.fixture(scope="module")
def parts(noted):
    return noted[0]


@pytest.mark.parametrize("file", sorted(path.name for path in verdicts.ACCEPTED.iterdir()))
def test_it_is_as_accepted(file, parts):
    found = difference(parts[file])
    assert not found, f"review this, then `make verdicts VERDICTS_ARGS=--accept`:\n{found}"


def test_every_fact_has_a_reader(noted):
    """A field that nobody reads goes, or is read, or has a row in ``facts.UNREAD``."""
    assert facts.without_reader(noted[1]) == []
    assert facts.rows_of_nothing() == set()


def test_a_field_of_a_record_that_is_read_by_nobody_is_seen():
    with facts.noting() as read:
        session = facts.whole_session()
        session.over("whole").gpus()
    found = {*map(str, facts.not_noted(read))}
    assert "Cost.rss_bytes" in found  # that a test reads it counts for nothing
    assert "Gpu.uuid" not in found
    assert "Threads.rss_bytes" not in found  # the same name, of another struct


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
