"""NCCL's RAS, played by a server on loopback with answers in the shape of its documentation."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tuimon.sources.standstill import ras
from tuimon.sources.standstill.ras import query_ras, troubles

WELL = """\
NCCL version 2.27.3 compiled with CUDA 12.8

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING      {}

Errors
======

"""
LATE = """\
Warnings
========

#0-0 (27a0) MISMATCH
  Communicator ranks have different collective operation counts
  3 ranks have launched up to operation 1204
  Rank 3 has launched up to operation 1203 -- GPU 3 managed by process 77 on node here
"""


#: As src/ras/client_support.cc of NCCL writes it since 2.27, with a process that does not answer and one that is gone.
GONE = """\
NCCL version 2.28.9+cuda13.0 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs
          per node  per process
      2          8            1

The outlier node:
  Node 10.0.0.7 running process 4711

Communicators... (5.003s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        14   RUNNING  INCOMPLETE,MISMATCH

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487985 on node 172.16.64.213 managing GPU 6

#0-0 (a3a3ad1d1df9f1d3) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 5 -- GPU 5 managed by process 3487984 on node 172.16.64.213

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""


class Server:
    """Answers one question, and closes unless told to hold the line."""

    def __init__(self, answer: str, holds: bool = False) -> None:
        self.asked = b""
        self._answer, self._holds = answer.encode(), holds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            asked, _ = self._listening.accept()
        except OSError:
            return
        with asked:
            self.asked = asked.recv(100)
            asked.sendall(self._answer)
            if self._holds:
                self._done.wait()

    def close(self) -> None:
        self._done.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    servers: list[Server] = []

    def start(answer: str, holds: bool = False) -> Server:
        servers.append(Server(answer, holds))
        monkeypatch.setattr(ras, "environment", lambda pid: {"NCCL_RAS_ADDR": f"localhost:{servers[-1].port}"})
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_what_is_wrong_is_kept(serve) -> None:
    server = serve(WELL.format("MISMATCH") + LATE)
    lines = query_ras([os.getpid()])
    assert server.asked == b"verbose status\n"
    assert lines[0] == "#0-0 (27a0) MISMATCH"
    assert lines[-1].startswith("Rank 3 has launched up to operation 1203 -- GPU 3 managed by process 77")
    assert len(lines) == 4


def test_of_a_job_that_is_well_nothing_is_kept() -> None:
    assert troubles(WELL.format("OK")) == []


def test_processes_that_are_gone_are_named() -> None:
    found = troubles(GONE)
    assert found[:2] == ["INCOMPLETE", "Missing communicator data from 1 job process"]
    assert "Process 3487985 on node 172.16.64.213 managing GPU 6" in found
    assert found[-1].startswith("Encountered 2 communication timeouts")
    assert not any("outlier" in line or "4711" in line for line in found)


def test_an_answer_that_was_cut_short_says_what_has_come() -> None:
    assert troubles(GONE[: GONE.index("DEAD") + 4])[-1] == "DEAD"
    assert troubles(GONE[: GONE.index("Errors\n")]) == []
    assert troubles("ERROR: Unknown command verbose status\n") == []


def test_an_answer_that_does_not_end_is_not_waited_for(serve, monkeypatch) -> None:
    monkeypatch.setattr(ras, "_ANSWER_S", 0.2)
    serve(WELL.format("MISMATCH") + LATE, holds=True)
    assert len(query_ras([os.getpid()])) == 4


def test_a_flood_is_cut(serve) -> None:
    assert len(troubles("Errors\n======\n" + "DEAD " * 1000 + "\nx\n" * 100)) == 24
    serve("Errors\n======\n" + "DEAD\n" * 200_000)
    assert query_ras([os.getpid()]) == ["DEAD"] * 24


def test_a_socket_of_somebody_else_is_not_asked(serve) -> None:
    server = serve(WELL)
    assert query_ras([os.getppid(), 2**22 + 1]) == []
    assert server.asked == b""
