"""Why launches set the pace, in the headline's words."""

import pytest

from tests.recorded_logs import log_path
from tuimon.diagnosis.verdicts import fold
from tuimon.sources.log.reader import read_log


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("h100_cell_by_cell", "one recurrent cell is called per time step"),
        ("h100_compiled", "the compiled model's kernels end before the next ones are launched"),
    ],
)
def test_a_compiled_model_does_not_launch_its_kernels_one_at_a_time(log, cause):
    _, findings = fold(read_log(str(log_path(log))))
    assert findings[0].rule == "launch_bound" and cause in findings[0].headline
