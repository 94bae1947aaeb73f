"""Lists of cores."""

import pytest

from tuimon.proc.core_list import core_list, core_numbers


@pytest.mark.parametrize("text", ["0", "0-3", "0-3,8", "1,3,5-7"])
def test_what_the_kernel_writes_is_read_and_written_alike(text):
    assert core_list(core_numbers(text + "\n")) == text


def test_what_is_no_list_has_no_cores():
    assert [core_numbers(text) for text in ("", "ff", "-1", "0,,2", "0-99999999999")] == [frozenset()] * 5
    assert core_list(()) == ""
