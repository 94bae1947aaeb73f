"""Where the kernel refuses ptrace, really: the reason is told, and the training goes on as if nothing had been."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.injection import without_ptrace
from tests.launch.injection.trainings import ended, training
from tests.sources.stacks import denied

INJECT = """
import sys
from tuimon.errors import CannotInject
from tuimon.launch.injection.inject import inject
try:
    inject(int(sys.argv[1]), timeout_s=20.0)
except CannotInject as error:
    print(error.message, "|", error.hint)
else:
    print("injected")
"""


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
@pytest.mark.parametrize(("wrapper", "reason"), [(without_ptrace, "ptrace is denied"), (denied, "may not be")])
def test_the_refusal_names_the_cause(wrapper: object, reason: str, tmp_path: Path) -> None:
    script = Path(str(wrapper.__file__))
    with training(tmp_path, sys.executable, also="time.sleep(0.01)") as process:
        command = [sys.executable, str(script), sys.executable, "-c", INJECT, str(process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode == wrapper.UNAVAILABLE:
            pytest.skip("this kernel has no such filter")
        assert done.returncode == 0, done.stderr
        assert reason in done.stdout and str(process.pid) in done.stdout
        assert "--cap-add SYS_PTRACE" in done.stdout and "tuimon run" not in done.stdout.partition("|")[0]
        assert ended(process) == ("over 9\n", "", 0)
