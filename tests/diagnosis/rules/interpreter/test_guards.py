"""Guards of torch.compile in plain words."""

import pytest

from tuimon.diagnosis.rules.interpreter import guard_of


@pytest.mark.parametrize(
    ("reason", "differs", "fix"),
    [
        ("tensor 'x' size mismatch at index 1", "dimension 1 of x differs", "mark_dynamic(x, 1)"),
        ("tensor 'L['x']' size mismatch at index 0", "dimension 0 of x differs", "mark_dynamic(x, 0)"),
        ("tensor 'x' dtype mismatch", "the dtype of x differs", "the same dtype"),
        ("L['length'] == N", "length has a different value", "torch.tensor(length)"),
        ("GLOBAL_STATE changed: grad_mode", "gradients or autocast are on in one call", "one mode"),
        ("", "something differs from what was compiled", "TORCH_LOGS=recompiles"),
    ],
)
def test_a_guard_says_what_differs_and_what_to_do(reason, differs, fix):
    guard = guard_of(reason)
    assert differs in guard.differs and fix in guard.fix
