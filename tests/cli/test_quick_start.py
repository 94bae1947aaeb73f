"""How often the garbage collector goes through everything."""

import gc

from tuimon.cli.quick_start import collect_seldom


def test_what_is_held_of_a_log_is_gone_through_a_tenth_as_often():
    thresholds, full = gc.get_threshold(), []
    gc.callbacks.append(lambda phase, info: full.append(phase) if info["generation"] == 2 else None)
    try:
        gc.set_threshold(100, 5, 10)
        kept = [[number] for number in range(100 * 6 * 11 * 3)]
        assert full  # as Python does it
        full.clear()
        collect_seldom()
        kept += [[number] for number in range(100 * 6 * 11 * 3)]
        assert not full
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
    assert len(kept) == 2 * 100 * 6 * 11 * 3
