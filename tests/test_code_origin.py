"""Whose code a file is: literal paths of users, libraries, torch and our hooks."""

from __future__ import annotations

import pytest

from tests.test_torch_code import TORCHES
from tuimon import code_origin


@pytest.mark.parametrize(
    ("file", "user"),
    [
        ("/home/u/train.py", True),
        ("/home/u/lib/model.py", True),
        ("/home/u/torch/utils/mine.py", True),
        ("<ipython-input-3-abc>", True),
        ("<python-input-7>", True),
        ("<timed exec>", True),
        ("In[4]", True),
        ("<stdin>", True),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("", False),
        ("/usr/lib/python3.11/threading.py", False),
        ("/usr/lib64/python3.9/queue.py", False),
        ("/opt/pypy/lib/pypy3.10/site.py", False),
        ("/opt/lib/python3.13t/queue.py", False),
        ("/usr/lib/python311.zip/json.py", False),
        ("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/home/u/src/pytorch/torch/nn/modules/linear.py", False),
        ("/home/u/src/pytorch/torch/_tensor.py", False),
        ("/home/u/src/pytorch/torch/nn/functional.py", False),
        ("/home/u/torch/distributed/train.py", True),  # torch's in a checkout, or a user's folder: taken for the user's
        ("/home/u/src/tuimon/agent/hooks.py", False),
        ("/tmp/torchinductor_u/ab/cab.py", False),
        (f"/scratch/cache/ln/cln{'b7' * 24}p5.py", False),  # TORCHINDUCTOR_CACHE_DIR
        ("/home/me/co/ccode_of_mine.py", True),
        (code_origin.__file__, False),
    ],
)
def test_whose_code_it_is(file: str, user: bool) -> None:
    assert code_origin.is_user_file(file) is user


def test_imports_and_packages() -> None:
    assert code_origin.is_import_system("<frozen importlib._bootstrap_external>")
    assert not code_origin.is_import_system("/usr/lib/python3.11/importlib/metadata/__init__.py")
    assert [code_origin.is_package_file(f"{torch}/_tensor.py") for torch in TORCHES] == [True, True, False]


@pytest.mark.parametrize(
    ("file", "package", "installed"),
    [
        ("/venv/bin/nice-train", "/venv/lib/python3.11/site-packages/nice/cli.py", True),
        ("/home/u/.local/bin/nice", "/home/u/.local/lib/python3.9/site-packages/nice.py", True),
        ("/usr/bin/nice", "/usr/lib/python3/dist-packages/nice/cli.py", True),
        ("/opt/x/bin/nice", "/opt/x/lib64/python3.12/site-packages/nice/cli.py", True),
        ("/home/u/project/bin/train.py", "/venv/lib/python3.11/site-packages/nice/cli.py", False),
        ("/home/u/train.py", "/venv/lib/python3.11/site-packages/nice/cli.py", False),
        ("/venv/bin/nice-train", "/usr/lib/python3.11/threading.py", False),
    ],
)
def test_a_script_beside_the_interpreter_is_installed(file: str, package: str, installed: bool) -> None:
    assert code_origin.is_installed_script(file, [file, package]) is installed


def test_a_folder_of_another_package_that_is_named_torch_is_none_of_torchs() -> None:
    own = "/venv/lib/python3.11/site-packages/nice/torch/agents/agent.py"
    assert code_origin.is_library_file(own) and not code_origin.is_torch(own)
    assert code_origin.innermost_work(["/home/u/train.py", own, f"{TORCHES[0]}/_tensor.py"]) == 1
    assert code_origin.is_torch(f"{TORCHES[0]}/_tensor.py") and code_origin.is_torch(f"{TORCHES[2]}/_tensor.py")
