"""Programs of the tests: run with our injection or without, in an interpreter of their own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tuimon.agent.ring.reader import RingReader

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "tuimon" / "agent"
INJECT = AGENT / "inject"

#: Begins each script of the fixture ``program``. Garbage would be collected at any time, and on a busy machine so long
#: that it is marked.
PREAMBLE = """
import gc; gc.disable()
import json, os, sys, torch
from _tuimon_agent import runtime
from _tuimon_agent.ring import files, layout
from _tuimon_agent.ring.files import side_file
from _tuimon_agent.ring.reader import RingReader

def in_child(function):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.write(write, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.wait()
    return json.loads(os.read(read, 10000))

"""


def environment(rings: Path | None, extra: dict[str, str] | None = None, path: str = "") -> dict[str, str]:
    """The tests' own environment, injected where ``rings`` is given, with ``path`` as the user's PYTHONPATH."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("TUIMON") and key != "PYTHONPATH"}
    entries = [path] if path else []
    if rings is not None:
        entries.insert(0, str(INJECT))
        env |= {"TUIMON_RUN": "test", "TUIMON_RING_DIR": str(rings)}
    if entries:
        env["PYTHONPATH"] = os.pathsep.join(entries)
    return env | (extra or {})


def python(
    *arguments: str, env: dict[str, str], cwd: Path | None = None, executable: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [executable, *arguments], env=env, cwd=cwd, capture_output=True, text=True, timeout=100, check=False
    )


def printed_json(done: subprocess.CompletedProcess[str]) -> Any:
    """What the program printed as JSON on its last line."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def meta_of(runtime: Any) -> dict[str, Any]:
    """The facts in the ring of this process."""
    reader = RingReader(runtime.writer().path)
    try:
        return reader.meta()
    finally:
        reader.close()


def as_agents(function: Any) -> Any:
    """The function, its code taken for the agent's: a stand-in for what the agent calls."""
    function.__code__ = function.__code__.replace(co_filename=str(AGENT / "stand_in.py"))
    return function


def is_ours(file: str | os.PathLike[str]) -> bool:
    """Whether a source file is the agent's; what folder the clone lies in does not matter."""
    return AGENT in Path(file).parents


def fake_torch(folder: Path, body: str = "__version__ = '0.0'") -> str:
    """A folder with a package ``torch`` that imports in no time; for what only matters to imports."""
    package = folder / "fake" / "torch"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(body + "\n")
    return str(package.parent)


def grow_old(folder):
    """Make the files of a folder an hour old."""
    for name in os.listdir(folder):
        os.utime(folder / name, (time.time() - 3600,) * 2)


def file_names(folder):
    """Names of the files in a folder, none where there is no folder."""
    return sorted(os.listdir(folder)) if folder.exists() else []
