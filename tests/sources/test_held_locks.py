"""Where a lock is held by ``acquire()``, without a ``with`` block."""

import pytest

from tuimon.sources.source_blocks import SourceBlocks

SOURCE = """\
def work(self):
    before()
    self.lock.acquire()
    inside()  # self.lock
    if finished():  # self.lock
        self.lock.release()  # self.lock
        return early()
    for item in items:  # self.lock
        use(item)  # self.lock
    with open(path) as file:  # self.lock
        read(file)  # open(path), self.lock
    self.lock.release()  # self.lock
    after()

def attempt():
    lock.acquire()
    try:
        inside()  # lock
        return result()  # lock
    except ValueError:
        mend()  # lock
    finally:
        lock.release()  # lock
    after()

def perhaps():
    if not lock.acquire(timeout=5):
        return give_up()
    got = other.acquire()  # lock
    inside(  # lock, other
        got,  # lock, other
    )  # lock, other
    other.release(), lock.release()  # lock, other
    if lock.acquire(False):
        inside()  # lock
        lock.release()  # lock
    else:
        without()

def never_given_back():
    mine.acquire()
    while True:  # mine
        wait()  # mine

def put():
    room.acquire()
    items.append(1)
    filled.release()

def get():
    filled.acquire()
    items.pop()
    room.release()

def handed_in():
    lock.acquire()
    def later():
        call()
    lock.release()  # lock
"""


@pytest.fixture
def inside(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    blocks = SourceBlocks()
    return lambda line: blocks.inside(str(file), line)


@pytest.mark.parametrize("line", range(1, len(SOURCE.splitlines()) + 1))
def test_what_is_held_at_a_line(inside, line):
    text = SOURCE.splitlines()[line - 1]
    assert inside(line) == (text.partition("  # ")[2]), text


def test_where_code_is_too_deep_nothing_is_held(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("lock.acquire()\nif a:\n    b()\n" + "elif a:\n    b()\n" * 900 + "lock.release()\n")
    assert SourceBlocks().inside(str(file), 3) in ("", "lock")
