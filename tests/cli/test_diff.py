"""``tuimon diff``: the command line in this process, on logs on disk."""

import json

import msgspec
import pytest
from msgspec import structs

from tests.views.comparison.series import correlated, run_records
from tuimon.views.comparison.result import Comparison


def write(path, records):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return str(path)


def log(path, seed, middle=50.0):
    return write(path, run_records(correlated(60, 0.3, seed, middle), start_unix_s=1.7e9 + seed))


@pytest.fixture
def before(tmp_path):
    return log(tmp_path / "before.jsonl", 1)


def test_json_is_the_contract(before, tmp_path, call):
    out, _ = call("diff", before, log(tmp_path / "after.jsonl", 2, 25.0), "--format", "json")
    found = json.loads(out)
    assert msgspec.to_builtins(msgspec.json.decode(out, type=Comparison)) == found
    assert found["schema"] == 1
    assert found["outcome"] == "faster"
    assert found["headline"].startswith(f"{found['speedup']['value']:.2f}x faster")
    assert found["before"]["runs"] == [before]
    assert found["before"]["facts"]["torch"] == "2.13.0+cpu"
    assert found["per_sample"] is False
    step = found["rows"][0]
    assert set(step) == {
        "name", "unit", "before", "after", "difference", "low", "high", "significant", "estimated"
    }  # fmt: skip
    assert (step["name"], step["unit"], step["significant"]) == ("step time", "ms", True)
    assert step["low"] < step["difference"] < step["high"] < 0
    assert {"notes", "unlike", "lines", "findings", "promise"} <= set(found)


@pytest.mark.parametrize(
    ("middle", "tolerance", "code", "says"),
    [
        (25.0, "5%", 0, ""),
        (50.0, "5%", 0, ""),
        (51.5, "5", 0, ""),
        (60.0, "5%", 1, "slower by more than 5 %"),
        (52.5, "5%", 3, "cannot tell"),
        (50.0, "0%", 3, "cannot tell"),
    ],
)
def test_exit_codes_for_ci(middle, tolerance, code, says, before, tmp_path, call):
    after = log(tmp_path / "after.jsonl", 2, middle)
    out, err = call("diff", before, after, "--fail-if-slower", tolerance, code=code)
    assert out
    assert says in err
    assert bool(err) == bool(says)


def test_it_is_written_to_a_file(before, tmp_path, call):
    out, _ = call("diff", before, log(tmp_path / "after.jsonl", 2), "-o", str(tmp_path / "diff.txt"))
    assert out == ""
    assert "step time" in (tmp_path / "diff.txt").read_text()


def test_what_is_no_log(before, tmp_path, call):
    (tmp_path / "notes.txt").write_text("no log\n")
    _, err = call("diff", before, str(tmp_path / "notes.txt"), code=1)
    assert "is not a tuimon log" in err
    call("diff", before, before, "--fail-if-slower", "much", code=2)


def run_of(path, seed, **changed):
    header, *records = run_records(correlated(60, 0.3, seed, 50.0), start_unix_s=1.7e9 + seed)
    return write(path, [structs.replace(header, **{"command": ["python", "train.py"]} | changed), *records])


@pytest.mark.parametrize(
    ("changed", "says", "anyway"),
    [
        ({"command": ["torchrun", "--nproc-per-node", "2", "/elsewhere/train.py", "--lr", "0.1"]}, "", "step time"),
        ({"command": ["python", "other.py"]}, "program train.py before, other.py after", "train.py -> other.py"),
        (None, "BEFORE and AFTER are the same: ", "step time"),
    ],
)
def test_what_differs_in_more_than_its_speed_is_compared_when_that_is_asked_for(changed, says, anyway, tmp_path, call):
    before = run_of(tmp_path / "before.jsonl", 1)
    after = before if changed is None else run_of(tmp_path / "after.jsonl", 2, **changed)
    out, err = call("diff", before, after, code=3 if says else 0)
    assert bool(out) is not bool(says) and says in err and ("--anyway" in err) is bool(says)
    assert anyway in call("diff", before, after, "--anyway")[0]
