"""What libraries warn of, beside the findings that it concerns."""

import pytest

from tests.diagnosis.cpu import HEALTHY, STARVED, run, workers
from tests.session.records import process, threads
from tuimon.agent.process import training_facts
from tuimon.diagnosis.rules.advice import WARNING_ROWS
from tuimon.records import Warned

BUSY = threads(12, (100, "python", 1.0, "running"), cpu_ratio=1.9)
ALIKE, ARRAYS = training_facts.KNOWN_WARNINGS[:2]


def actions_of(phases, *warnings, more=(BUSY,)):
    """The actions of each finding, by its rule."""
    found = run(phases, process(warnings=list(warnings)), *more)
    return {each.rule: [fix.action for fix in each.fixes] for each in found}


def test_a_loop_is_not_in_order_whose_passes_a_library_warns_of():
    actions = actions_of(HEALTHY, Warned(ALIKE, "/me/train.py", 40))["compute_bound_cpu"]
    assert actions[0].startswith("give the output and the target of the loss the same shape")
    assert actions[0].endswith("(see the warning at train.py:40)")
    assert not any("nothing holds" in action for action in actions)
    assert "nothing holds" in actions_of(HEALTHY)["compute_bound_cpu"][0]


@pytest.mark.parametrize("line", [31, 32])
def test_one_at_the_line_of_a_finding_is_told_beside_it(line):
    waits = workers(2, 0.99, ([0, 1], 40))
    actions = actions_of(STARVED, Warned(ALIKE, "data.py", line), more=waits)["input_bound"]
    assert ("same shape" in actions[-1]) == (line == 31)


def test_one_of_an_area_is_told_wherever_its_line_is():
    actions = actions_of(STARVED, Warned(ARRAYS, "elsewhere.py", 7), more=workers(2, 0.99, ([0, 1], 40)))["input_bound"]
    assert (
        actions[-1]
        == "stack the arrays (np.stack()) before making a tensor of them (see the warning at elsewhere.py:7)"
    )


def test_one_of_a_notebooks_cell_has_no_place():
    actions = actions_of(HEALTHY, Warned(ALIKE, "", 3))["compute_bound_cpu"]
    assert any(action.endswith("(see the warning)") for action in actions)


def test_each_that_is_read_has_a_row():
    assert set(WARNING_ROWS) == set(training_facts.KNOWN_WARNINGS)


def test_others_change_nothing():
    assert actions_of(HEALTHY, Warned("of a later version", "/me/train.py", 40)) == actions_of(HEALTHY)


def test_it_is_told_once_and_makes_no_finding():
    known = Warned(ALIKE, "/me/train.py", 40)
    assert actions_of(STARVED, more=()).keys() == actions_of(STARVED, known, more=()).keys()
    together = actions_of(HEALTHY, known)
    assert sum("same shape" in action for actions in together.values() for action in actions) == 1
