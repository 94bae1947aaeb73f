"""What may be imported where: cheap imports stay cheap, the agent stays alone, the layers hold."""

import ast
import contextlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
AGENT = ROOT / "tuimon" / "agent"
HEAVY = {"msgspec", "textual", "rich", "torch", "pynvml", "numpy"}

#: imports of the agent that are neither the standard library nor itself by its public name
GUARDED = {"torch", "nvtx", "_tuimon_agent", "sitecustomize"}


def loaded_by(statement):
    """Top-level names in sys.modules of a fresh interpreter after ``statement``."""
    return {name.split(".")[0] for name in modules_after(statement)}


def modules_after(statement):
    """sys.modules of a fresh interpreter after ``statement``."""
    script = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_in_loop_api_loads_nothing_heavy():
    assert not loaded_by("import tuimon") & HEAVY


def test_every_module_outside_the_agent_imports_without_torch():
    names = [module_name(path) for path in python_files(ROOT / "tuimon") if AGENT not in path.parents]
    names.remove("tuimon.__main__")
    assert "torch" not in loaded_by("\n".join(f"import {name}" for name in names))


def test_watching_in_lines_loads_no_screen_no_openssl_and_no_readers_of_packages():
    watching = (
        "import tuimon.cli.commands.run, tuimon.cli.watching\n"
        "import tuimon.views.headless, tuimon.monitor.live_verdicts, tuimon.sources.log.writer\n"
        "from tuimon.monitor.options import Options\nfrom tuimon.monitor.opening import sources_of\n"
        "from tuimon.sources.process_table import ProcessTable\n"
        "assert len(list(sources_of(ProcessTable(1, None), Options()))) > 5\n"
    )
    loaded = loaded_by(watching)
    assert not loaded & {"textual", "rich", "asyncio", "ssl", "_hashlib", "difflib", "torch"}
    assert not loaded & {"email", "zipfile"}  # of importlib.metadata


def test_the_first_frame_comes_before_the_rules_and_the_sources():
    loaded = modules_after("import tuimon.cli.commands.run, tuimon.cli.watching, tuimon.views.tui.app")
    later = ("diagnosis.rule", "diagnosis.evidence.evidence", "sources.markers", "sources.stacks", "sources.gpus")
    assert not [name for name in loaded if name.startswith(tuple(f"tuimon.{room}" for room in later))]
    assert not loaded & {"statistics", "ssl"}


def test_the_full_screen_loads_what_keys_open_when_they_are_pressed():
    """Each room that it loads costs memory in every run."""
    loaded = modules_after("import tuimon.cli.commands.run, tuimon.views.tui.app")
    rooms = ("views.comparison", "diagnosis.explain", "launch.injection", "sources.log.source", "trace")
    assert not [name for name in loaded if name.startswith(tuple(f"tuimon.{room}" for room in rooms))]


def test_what_is_loaded_is_never_collected_again():
    script = (
        "import gc\nfrom tuimon.cli.quick_start import without_collections\n"
        "with without_collections():\n    import msgspec\n    assert not gc.isenabled()\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 10_000"
    )
    assert "msgspec" in loaded_by(script)


def test_help_loads_no_screen():
    script = (
        "import sys\nfrom tuimon.__main__ import main\nsys.argv = ['tuimon', '--help']\n"
        "try:\n    main()\nexcept SystemExit as leave:\n    assert not leave.code\n"
    )
    assert not loaded_by(script) & {"textual", "torch", "numpy"}


def test_the_agent_imports_only_the_standard_library():
    foreign = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in python_files(AGENT)
        for name in imported_by(path)
        if name not in sys.stdlib_module_names | GUARDED and not name.startswith("tuimon.agent")
    }
    assert not foreign


@pytest.mark.parametrize("path", sorted(AGENT.rglob("*.py")), ids=lambda path: str(path.relative_to(AGENT)))
def test_the_agent_is_python_3_9(path):
    ast.parse(path.read_text(), filename=str(path), feature_version=(3, 9))


def python_files(folder):
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path):
    """Names as imported, dotted; relative ones made absolute; those under ``if TYPE_CHECKING`` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(absolute(node, path))
    return {name if name.startswith("tuimon") else name.split(".")[0] for name in found}


def absolute(node, path):
    if not node.level:
        module = node.module or ""
        # ``from tuimon import agent`` reaches into tuimon.agent
        return f"tuimon.{node.names[0].name}" if module == "tuimon" else module
    package = path.relative_to(ROOT).parts[: -node.level]
    return ".".join([*package, node.module or node.names[0].name])


def test_no_named_tuple_is_generic():
    """Python 3.10 cannot import one."""
    found = [
        f"{path.name}: {node.name}"
        for path in python_files(ROOT / "tuimon")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and {"NamedTuple", "Generic"} <= {ast.unparse(base).partition("[")[0] for base in node.bases}
    ]
    assert found == []


# -- tests and private names

#: Names with an underscore that are others' interfaces: of named tuples, and of Textual's App.
FOREIGN = {"_fields", "_replace", "_asdict", "_make", "_handle_exception"}
PATCHES = {"setattr", "delattr", "getattr", "patch", "object"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name != "_"


def stored_names(tree):
    """The names that a module gives to functions, classes, variables and attributes."""
    return {
        getattr(node, "name", None) or getattr(node, "id", None) or getattr(node, "attr", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        or (isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store))
    }


def private_uses(tree, known):
    """The private names of ``known`` that a test uses, or a program in its text.

    Attributes of its own classes, and torch's, are no use.
    """
    own, found, known = stored_names(tree), set(), known - FOREIGN
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is str and "._" in node.value:
            with contextlib.suppress(SyntaxError):
                found |= private_uses(ast.parse(textwrap.dedent(node.value)), known)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("tuimon", "_tuimon")):
            found |= {alias.name for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.Attribute) and node.attr in known:
            owner = ast.unparse(node.value)
            is_own = owner in ("self", "cls") and node.attr in own
            found |= {node.attr} - ({node.attr} if is_own or "torch" in owner or "cuda" in owner else set())
        elif (
            isinstance(node, ast.Call) and (getattr(node.func, "attr", None) or getattr(node.func, "id", "")) in PATCHES
        ):
            texts = [each.value for each in node.args[:2] if isinstance(each, ast.Constant) and type(each.value) is str]
            found |= {name for text in texts if (name := text.rpartition(".")[2]) in known}
    return found


def test_private_uses_are_seen():
    source = '''
from tuimon.text import _plain
monitor._records.put(1)
monkeypatch.setattr(gdb, "_run", None)
mock.patch("tuimon.text._cut")
class Own:
    def __init__(self):
        self._seen = row._replace(a=1), torch.cuda._sleep, "_run"
program("""
    from _tuimon_agent.api import _ranges
    runtime._made_ns = 0
""")
'''
    known = {"_plain", "_records", "_run", "_cut", "_seen", "_sleep", "_replace", "_made_ns", "_ranges"}
    used = {"_plain", "_records", "_run", "_cut", "_ranges", "_made_ns"}
    assert private_uses(ast.parse(source), known) == used


def test_tests_use_no_private_name_of_the_product():
    product = (ast.parse(path.read_text()) for path in python_files(ROOT / "tuimon"))
    known = {name for tree in product for name in stored_names(tree) if is_private(name)}
    used = {
        str(path.relative_to(ROOT)): names
        for path in python_files(ROOT / "tests")
        if path.name != Path(__file__).name and (names := private_uses(ast.parse(path.read_text()), known))
    }
    assert not used, "test it through what uses it, or make the name public"
