"""Dumps of torch's flight recorder: real ones of four gloo ranks, and such as NCCL's are documented to be."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tuimon.records import RankCollective, StandingProcess
from tuimon.session.standstills import open_collectives
from tuimon.sources.flight_recorders import Recorders, UnsafePickle, rank_collectives

#: Written by torch 2.13 (``_dump_fr_trace``) in four ranks that made a broadcast and three all_reduces, and then three
#: of them a fourth.
DUMPS = Path(__file__).with_name("dumps")
ME = os.getpid()


def rows_of(*dumps: bytes) -> list[RankCollective]:
    return [row for rank, data in enumerate(dumps) for row in rank_collectives(data, rank)]


def texts(rows: list[RankCollective]) -> list[str]:
    return [one.text for one in open_collectives(rows)]


def nccl(*entries: tuple[int, str, str]) -> bytes:
    """A dump of four ranks with entries (number, name, state)."""
    made = [
        {"record_id": number, "collective_seq_id": number, "op_id": number, "profiling_name": f"nccl:{name}",
         "state": state, "retired": state == "completed"}
        for number, name, state in entries
    ]  # fmt: skip
    return documented(made, **{"0": "[0, 1, 2, 3]"})


def test_the_rank_that_real_dumps_show_missing_is_named() -> None:
    rows = rows_of(*((DUMPS / f"gloo_rank_{rank}").read_bytes() for rank in range(4)))
    assert [(row.entered, row.waits_for) for row in rows] == [(5, 5), (5, 5), (5, 5), (4, None)]
    assert rows[0].members == [0, 1, 2, 3]
    assert texts(rows) == ["rank 3 has not entered all_reduce #5, in which ranks 0-2 wait"]


def test_a_rank_in_another_collective_one_without_a_dump_and_none_missing() -> None:
    reduces, gathers = nccl((7, "all_reduce", "started")), nccl((7, "all_gather", "started"))
    assert texts(rows_of(reduces, reduces, gathers, reduces)) == [
        "rank 2 is in all_gather #7, ranks 0-1, 3 in all_reduce #7"
    ]
    assert texts(rows_of(reduces, reduces)) == [
        "ranks 0-1 wait in all_reduce #7; no flight recorder is known of ranks 2-3"
    ]
    assert texts(rows_of(reduces, reduces, reduces, reduces)) == [
        "all 4 ranks are in all_reduce #7, and it does not end"
    ]


def documented(entries: list[dict[str, Any]], version: str = "2.10", **groups: str) -> bytes:
    """A dump by ``torch/csrc/distributed/c10d/FlightRecorderDetail.hpp``; ``groups``: name to ranks."""
    plain = {
        "frames": [{"name": "train", "filename": "train.py", "line": 9}], "record_id": 0, "pg_id": 0,
        "process_group": ("0", "default_pg"), "thread_name": "pt_main_thread", "thread_id": "140569104071552",
        "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1,
        "profiling_name": "nccl:all_reduce", "time_created_ns": 1795331760573268912, "input_sizes": [[4]],
        "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "completed",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": True,
        "timeout_ms": 600000, "is_p2p": False,
    }  # fmt: skip
    config = {name: {"name": name, "desc": f"desc_{name}", "ranks": ranks} for name, ranks in groups.items()}
    status = {"last_enqueued_collective": 7, "last_started_collective": 7, "last_completed_collective": 6}
    made = {
        "version": version, "pg_config": config, "comm_lib_version": "2.27.5", "pg_status": {"0": status},
        "entries": [plain | {"record_id": number} | entry for number, entry in enumerate(entries)],
        "nccl_comm_state": {"0x1": {"rank": "0", "nRanks": "2", "inited": "true"}},
    }  # fmt: skip
    return pickle.dumps(made, protocol=2)


def coalesced(number: int, state: str, begins: int) -> list[dict[str, Any]]:
    """Two collectives that were launched as one: theirs have no events, so that they stay scheduled for ever."""
    part = {"collective_seq_id": number, "state": "scheduled", "retired": False, "profiling_name": "nccl:all_gather"}
    whole = {"collective_seq_id": number, "state": state, "retired": state == "completed"}
    parts = [part | {"op_id": begins}, part | {"op_id": begins + 1}]
    return [*parts, whole | {"op_id": begins + 2, "profiling_name": "nccl:coalesced"}]


def test_of_collectives_that_were_coalesced_the_whole_says_whether_they_are_over() -> None:
    rows = rows_of(documented([*coalesced(6, "completed", 1), *coalesced(7, "started", 4)]))
    assert [(row.entered, row.waits_for, row.name) for row in rows] == [(7, 7, "all_gather")]
    over = documented([*coalesced(6, "completed", 1), {"collective_seq_id": 7}])
    assert [(row.entered, row.waits_for) for row in rows_of(over)] == [(7, None)]


def test_a_group_that_a_rank_has_not_begun_with_is_known() -> None:
    tensor = {
        "process_group": ("5", "desc_5"),
        "profiling_name": "nccl:all_gather",
        "state": "started",
        "retired": False,
    }
    waits = documented([{}, tensor | {"collective_seq_id": 3}], **{"0": "[0, 1, 2]", "5": "[0, 1]"})
    others = documented([{}], **{"0": "[0, 1, 2]", "5": "[0, 1]"}), documented([{}], **{"0": "[0, 1, 2]"})
    assert texts(rows_of(waits, *others)) == ["rank 1 has not entered all_gather #3, in which rank 0 waits"]
    overwritten = documented([{"record_id": 4000}], **{"0": "[0, 1, 2]", "5": "[0, 1]"})
    assert texts(rows_of(waits, overwritten, others[1])) == [
        "rank 0 waits in all_gather #3; no flight recorder is known of rank 1"
    ]


def test_dumps_of_older_versions_are_read_and_those_of_later_ones_are_not() -> None:
    def old(number: int, **more: Any) -> dict[str, Any]:
        entry = {
            "record_id": number,
            "pg_id": 0,
            "seq_id": number,
            "op_id": number,
            "profiling_name": "nccl:all_reduce",
        }
        return entry | {"state": "completed", "retired": True} | more

    send = old(4, profiling_name="nccl:send 0->1", state="started", retired=False)
    entries = [old(5), old(6, state="started", retired=False), send]
    made = pickle.dumps({"version": "1.5", "entries": entries, "pg_config": {}})
    assert [(row.group, row.entered, row.waits_for) for row in rows_of(made)] == [("0", 6, 6)]
    with pytest.raises(UnsafePickle, match=r"version '3\.0'"):
        rank_collectives(documented([{}], version="3.0"), 0)


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(_Runs()),
        pickle.dumps({"entries": [_Runs()]}),
        pickle.dumps(Path("/")),
        b"",
        b"\x80\x02",
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x82\x01.",
        pickle.dumps([1]),
        pickle.dumps({"entries": [{"collective_seq_id": "x"}]}),
        pickle.dumps({"entries": 7}),
        nccl((1, "all_reduce", "started"))[:-20],
    ],
)
def test_what_is_no_dump_is_refused_and_runs_nothing(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsafePickle):
        rank_collectives(data, 0)
    assert not list(tmp_path.iterdir())


class TestRecorders:
    """Where torch writes, and what asks it to."""

    def recorders(self, environ: dict[str, str]) -> Recorders:
        suspects = [StandingProcess(ME, "trainer", 3), StandingProcess(ME, "worker", 3)]
        return Recorders(suspects, 20.0, environ=lambda pid: environ)

    def test_a_dump_is_read_once_it_is_there_and_again_when_it_is_another(self, tmp_path: Path) -> None:
        recorders = self.recorders({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "trace_")})
        assert recorders.read_new() == []
        (tmp_path / "trace_3").write_bytes(nccl((5, "all_reduce", "started")))
        (row,) = recorders.read_new()
        assert (row.rank, row.entered, row.name) == (3, 5, "all_reduce")
        assert recorders.read_new() == []
        (tmp_path / "trace_3").write_bytes(nccl((6, "all_reduce", "started")))
        newer = os.stat(tmp_path / "trace_3").st_mtime + 5
        os.utime(tmp_path / "trace_3", (newer, newer))
        assert [row.entered for row in recorders.read_new()] == [6]

    def test_the_default_place_is_torchs(self, tmp_path: Path) -> None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "comm_lib_trace_rank_3").write_bytes(nccl((5, "all_reduce", "started")))
        assert len(self.recorders({"XDG_CACHE_HOME": str(tmp_path)}).read_new()) == 1

    def test_one_of_an_earlier_standstill_or_of_another_user_says_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        environ = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "t")}
        (tmp_path / "t3").write_bytes(nccl((5, "all_reduce", "started")))
        os.utime(tmp_path / "t3", (1e9, 1e9))
        assert self.recorders(environ).read_new() == []
        os.utime(tmp_path / "t3")
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        assert self.recorders(environ).read_new() == []

    def test_torch_is_asked_through_its_pipe_and_nothing_else_is_written_to(self, tmp_path: Path) -> None:
        recorders = self.recorders({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "ask_")})
        recorders.request()  # no pipe
        os.mkfifo(tmp_path / "ask_3.pipe")
        recorders.request()  # nobody reads it: that must not wait
        handle = os.open(tmp_path / "ask_3.pipe", os.O_RDONLY | os.O_NONBLOCK)
        recorders.request()
        assert os.read(handle, 16) == b"1"
        os.close(handle)
        os.unlink(tmp_path / "ask_3.pipe")
        (tmp_path / "ask_3.pipe").write_bytes(b"a file")
        recorders.request()
        assert (tmp_path / "ask_3.pipe").read_bytes() == b"a file"
