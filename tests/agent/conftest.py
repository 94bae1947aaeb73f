import os
import sys
import textwrap

import pytest

from tests.agent.programs import PREAMBLE, environment, fake_torch, printed_json, python
from tuimon.agent import api, ranges, runtime
from tuimon.agent.ring import layout
from tuimon.agent.ring.reader import RingReader


@pytest.fixture(autouse=True)
def written_at_once(monkeypatch):
    """In this process no loop counts as fast: a marker is in the ring when ``emit`` returns."""
    from tuimon.agent.ring import writer

    # of two threads one may read its clock before the other, and write after it: less than no time has gone by
    monkeypatch.setattr(writer, "FAST_GAP_NS", -(10**12))


@pytest.fixture(autouse=True)
def no_collections():
    """This process collects its garbage whenever it likes: no markers of that, but where a test wants them."""
    from tuimon.agent.process import gc_pauses

    gc_pauses.uninstall()


@pytest.fixture(autouse=True)
def no_compilations(monkeypatch):
    """Tests before this one have compiled in this process: no markers of that, but where a test wants them."""
    from tuimon.agent.torch_compat import compilations

    monkeypatch.setattr(compilations.reading, "due_ns", sys.maxsize)


@pytest.fixture
def hooked(monkeypatch, shared_memory):
    """torch in this process with our hooks in place, on a ring of its own; gives the module ``runtime``."""
    torch = pytest.importorskip("torch")
    from tuimon.agent import install
    from tuimon.agent.process import gc_pauses
    from tuimon.agent.watch import ImportWatch

    watch = ImportWatch()
    install.uninstall()
    monkeypatch.setattr(gc_pauses, "PAUSE_NS", sys.maxsize)  # a collection may come while the hooks are installed
    install.install(torch, watch.when_imported)
    assert runtime.on
    gc_pauses.uninstall()
    yield runtime
    install.uninstall()
    if watch in sys.meta_path:
        sys.meta_path.remove(watch)


@pytest.fixture
def recorded(hooked):
    """What the hooks of this process emit: (kind, value, flag); but for the sizes of batches."""
    markers = []

    def emit(kind, value=0, flag=0):
        if kind not in (layout.BATCH, layout.POSITION, layout.TENSORS, layout.TOKENS):
            markers.append((kind, value, flag))

    with pytest.MonkeyPatch.context() as patched:  # undone before the hooks are, as the ring's own belongs to them
        patched.setattr(runtime.training_facts, "any_made", lambda: False)  # tests before this one have made some
        patched.setattr(hooked, "emit", emit)
        yield markers


@pytest.fixture
def shared_memory(tmp_path, monkeypatch):
    """A writable place for rings, named as the environment names it."""
    monkeypatch.setenv("TUIMON_RING_DIR", str(tmp_path / "rings"))
    return os.fspath(tmp_path / "rings")


@pytest.fixture
def program(tmp_path):
    """Runs a script that has imported a torch of no weight; gives what it printed as JSON."""
    env = environment(tmp_path / "rings", path=fake_torch(tmp_path))

    def run(body, **extra):
        script = PREAMBLE + textwrap.dedent(body)
        return printed_json(python("-c", script, "an argument", env=env | extra))

    return run


@pytest.fixture
def monitored(monkeypatch, shared_memory):
    """The API on a ring of its own, no torch needed; gives a function that reads what has been written."""
    monkeypatch.setattr(runtime, "on", True)
    monkeypatch.setattr(runtime, "is_compiling", lambda: False)
    assert runtime.open_ring()
    api.connect(runtime, ranges)
    reader = RingReader(runtime.writer().path)

    def read():
        # what the API writes; others of this process, as the garbage collector, may write at any time
        kinds = layout.RANGE_PUSH, layout.RANGE_POP, layout.MARK, layout.STEP
        markers = [m for m in reader.read() if m.kind in kinds]
        return [(m.kind, reader.name(m.value).split(layout.PLACE_SEPARATOR)) for m in markers]

    read.reader = reader
    yield read
    reader.close()
    api.connect(None, None)
    runtime.stop()


@pytest.fixture
def weight():
    """A parameter to train."""
    torch = pytest.importorskip("torch")
    return torch.nn.Parameter(torch.ones(3))
