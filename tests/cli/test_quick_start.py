"""What makes the start quick and the process small."""

import subprocess
import sys

from tests.waiting import until
from tuimon.cli.quick_start import word_when_slow

#: In an interpreter of its own: Python goes through everything only where much is new beside what it holds already.
_COUNTING = """
import gc
from tuimon.cli.quick_start import collect_seldom
full = []
gc.callbacks.append(lambda phase, info: full.append(phase) if info["generation"] == 2 else None)
gc.set_threshold(100, 5, 10)
kept = [[number] for number in range(100 * 6 * 11 * 20)]
before = len(full)
collect_seldom()
kept += [[number] for number in range(100 * 6 * 11 * 20)]
print(before, len(full) - before)
"""


def test_what_is_held_of_a_log_is_gone_through_much_less_often():
    done = subprocess.run([sys.executable, "-c", _COUNTING], capture_output=True, text=True, timeout=60, check=True)
    before, after = map(int, done.stdout.split())
    assert before >= 4  # as Python does it
    assert after <= before / 2


def test_a_start_that_takes_long_says_so_before_the_screen_comes(capsys):
    said = []
    with word_when_slow("loading", after_s=0.0):
        until(lambda: said.append(capsys.readouterr().err) or "loading\n" in "".join(said), "the word")
    with word_when_slow("loading", after_s=3600.0):
        pass
    assert capsys.readouterr().err == ""
