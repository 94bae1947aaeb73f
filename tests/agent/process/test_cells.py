"""Cells that a real IPython runs."""

import pytest

from tuimon.agent.ring import files, layout

pytest.importorskip("IPython")

#: IPython in a process of its own, which begins anew as with a torch that is imported in the first cell.
SHELL = """
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from _tuimon_agent import install, watch
HistoryManager.enabled = False
shell = InteractiveShell.instance()

def run(text):
    return shell.run_cell(text, store_history=True)

def reinstall():
    install.uninstall()
    watch.instrument(torch)

reinstall()
"""


@pytest.fixture
def notebook(program):
    """Runs a script in which ``run(text)`` runs a cell."""
    return lambda body: program(SHELL + body)


def test_the_end_of_a_cell_is_marked_whether_it_fails_or_not(notebook):
    kinds = notebook("""
run("x = 1")
run("raise KeyboardInterrupt")
print(json.dumps([m.kind for m in RingReader(runtime.writer().path).read() if m.kind != layout.GC_PAUSE]))
""")
    assert kinds == [layout.LOOP_LEFT] * 2


def test_text_and_number_of_cells_lie_beside_the_ring_while_they_run(notebook):
    first, second = notebook("""
path = side_file(runtime.writer().path, "cells")
found = []
shell.user_ns["look"] = lambda: found.append(json.load(open(path))["cells"])
run("def f():\\n    look()\\n    return f.__code__.co_filename")
run("file = f()")
found[-1] += [shell.user_ns["file"]]
run("look()")
print(json.dumps(found))
""")
    assert files.CELLS == "cells"
    (file, number, text), (_, later_number, later), name = first
    assert (number, later_number) == (1, 2) and file == name
    assert text.splitlines()[1] == "    look()" and later == "file = f()\n"
    assert [number for _, number, _ in second] == [1, 2, 3]


def test_cells_that_ran_before_are_known_too(notebook):
    cells = notebook("""
run("a = 1")
reinstall()
print(json.dumps(json.load(open(side_file(runtime.writer().path, "cells")))["cells"]))
""")
    assert [(number, text) for _, number, text in cells] == [(1, "a = 1\n")]


def test_withdrawn_it_leaves_nothing(notebook):
    left = notebook("""
path = side_file(runtime.writer().path, "cells")
there = os.path.exists(path)
install.uninstall()
callbacks = [f.__qualname__ for f in shell.events.callbacks["post_run_cell"]]
print(json.dumps([there, os.path.exists(path), callbacks, "cache" in vars(shell.compile), run("1 + 1").result]))
""")
    there, still, callbacks, wrapped, result = left
    assert there and not still and not wrapped and result == 2
    assert not any("Cells" in name for name in callbacks)


def test_of_many_cells_the_latest_are_kept(notebook):
    numbers = notebook("""
for each in range(6):
    run("x = %d  # %s" % (each, "." * 200_000))
print(json.dumps([n for _, n, _ in json.load(open(side_file(runtime.writer().path, "cells")))["cells"]]))
""")
    assert numbers == [5, 6]


def test_a_forked_child_that_ends_leaves_its_parents_cells(notebook):
    assert notebook("""
path = side_file(runtime.writer().path, "cells")
child = os.fork()
if not child:
    sys.exit(0)  # runs what is registered at exit
os.waitpid(child, 0)
print(json.dumps(os.path.exists(path)))
""")


def test_an_ipython_of_another_make_keeps_no_other_hook_away(notebook):
    assert notebook("""
install.uninstall()
shell.compile = None
reinstall()
print(json.dumps(runtime.on and runtime.writer() is not None))
""")
