"""Waiting for torch: imports behave, to the last detail, as they do without us."""

import importlib.util
import os
import sys
import zipfile

import pytest

from tests.agent.programs import ROOT, as_agents, environment, fake_torch, is_ours, printed_json, python
from tuimon.agent.outside import HIDES_FRAMES
from tuimon.agent.watch import ImportWatch


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module to import, and the watch that awaits it."""
    (tmp_path / "awaited_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "awaited_module.py"
    sys.modules.pop("awaited_module", None)


@pytest.fixture
def watch():
    watch = ImportWatch()
    yield watch
    if watch in sys.meta_path:
        sys.meta_path.remove(watch)


def test_calls_once_after_the_module_has_run_and_leaves(module, watch):
    seen = []
    watch.when_imported("awaited_module", lambda m: seen.append(m.value))
    assert sys.meta_path[0] is watch
    import awaited_module

    assert seen == [1] and watch not in sys.meta_path
    assert "exec_module" not in vars(awaited_module.__spec__.loader)
    importlib.reload(awaited_module)
    assert seen == [1]


def test_an_imported_module_is_reported_at_once(watch):
    seen = []
    watch.when_imported("sys", seen.append)
    assert seen == [sys] and watch not in sys.meta_path


def test_finding_a_spec_is_no_import(module, watch):
    seen = []
    watch.when_imported("awaited_module", seen.append)
    spec = importlib.util.find_spec("awaited_module")
    assert type(spec.loader) is importlib.machinery.SourceFileLoader
    assert spec.origin == str(module) and seen == []
    import awaited_module

    assert seen == [awaited_module]


def test_a_module_that_is_not_there(watch):
    watch.when_imported("no_such_module_here", lambda m: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        import no_such_module_here  # noqa: F401


def test_a_failed_import_may_be_tried_again(module, watch):
    seen = []
    watch.when_imported("awaited_module", lambda m: seen.append(m.value))
    module.write_text("raise ImportError('library missing')\n")
    with pytest.raises(ImportError, match="library missing") as caught:
        importlib.import_module("awaited_module")
    if HIDES_FRAMES:
        assert not any(is_ours(entry.path) for entry in caught.traceback)
    module.write_text("value = 22222\n")
    importlib.invalidate_caches()
    importlib.import_module("awaited_module")
    assert seen == [22222]


def test_an_error_of_the_callback_stays_with_us(module, watch):
    watch.when_imported("awaited_module", as_agents(lambda m: 1 / 0))
    import awaited_module

    assert awaited_module.value == 1


def test_an_interrupt_in_the_callback_goes_through(module, watch):
    def interrupt(m):
        raise KeyboardInterrupt

    watch.when_imported("awaited_module", interrupt)
    with pytest.raises(KeyboardInterrupt):
        import awaited_module  # noqa: F401


def test_a_lazy_loader(module, watch):
    seen = []
    watch.when_imported("awaited_module", lambda m: seen.append(m.__name__))
    spec = importlib.util.find_spec("awaited_module")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    lazy = importlib.util.module_from_spec(spec)
    sys.modules["awaited_module"] = lazy
    spec.loader.exec_module(lazy)
    assert seen == []
    assert lazy.value == 1 and seen == ["awaited_module"]


def test_a_loader_that_serves_a_whole_archive(tmp_path, monkeypatch, watch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("zipped_one.py", "value = 1")
        archive.writestr("zipped_two.py", "value = 2")
    monkeypatch.syspath_prepend(str(tmp_path / "a.zip"))
    seen = []
    watch.when_imported("zipped_one", lambda m: seen.append(m.value))
    assert importlib.util.find_spec("zipped_one") is not None
    import zipped_two

    assert seen == [] and zipped_two.value == 2
    import zipped_one

    assert seen == [1] and zipped_one.value == 1


def test_a_finder_that_knows_only_the_old_protocol(module, watch, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path])
    seen = []
    watch.when_imported("awaited_module", lambda m: seen.append(m.value))
    spec = watch.find_spec("awaited_module")
    assert spec is not None and spec.name == "awaited_module"


def test_two_of_us_at_once(module, watch):
    other, seen = ImportWatch(), []
    watch.when_imported("awaited_module", lambda m: seen.append("first"))
    other.when_imported("awaited_module", lambda m: seen.append("second"))
    import awaited_module

    assert sorted(seen) == ["first", "second"] and awaited_module.value == 1
    assert other not in sys.meta_path and watch not in sys.meta_path
    assert "exec_module" not in vars(awaited_module.__loader__)


def test_torch_that_fails_to_import_fails_as_in_plain_python(tmp_path):
    path = fake_torch(tmp_path, "raise OSError('libcudart.so: cannot open shared object file')")
    plain = python("-c", "import torch", env=environment(None, path=path))
    ours = python("-c", "import torch", env=environment(tmp_path / "rings", path=path))
    assert plain.returncode == ours.returncode == 1
    if sys.version_info >= (3, 11):
        assert ours.stderr == plain.stderr


def test_importing_tuimon_is_enough(tmp_path):
    """No ``tuimon run``: a program that imports tuimon gets its ring with torch, for ``tuimon attach``."""
    env = environment(None, path=os.pathsep.join([fake_torch(tmp_path), str(ROOT)]))
    env["TUIMON_RING_DIR"] = str(tmp_path / "rings")
    script = """
import json, sys, {order}
from tuimon.agent import runtime
print(json.dumps([runtime.on, runtime.writer() is not None]))
"""
    for order in ("tuimon, torch", "torch, tuimon"):
        assert printed_json(python("-c", script.replace("{order}", order), env=env)) == [True, True]
