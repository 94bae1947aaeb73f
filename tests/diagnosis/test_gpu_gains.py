"""The gain of a fix on a GPU, held against the loop without it."""

from pathlib import Path

import pytest

from tests.scenarios.streams import STREAMS, judged

BY_NAME = {stream.name: stream for stream in STREAMS}


@pytest.mark.parametrize(
    "name", ["checkpoint every step", "long checkpoint every step", "item() before making a batch"]
)
def test_the_loop_without_it_gains_no_less_than_told_and_no_more_than_it_may(name: str, tmp_path: Path):
    """The idle time of the GPU bounds it: launches that overlap make it the upper end."""
    found = judged(BY_NAME[name], tmp_path, 12.0)
    assert found.right, found.headline
    assert found.predicted is not None and found.measured is not None and found.predicted_at_most is not None
    assert found.predicted <= found.measured <= 1.05 * found.predicted_at_most
