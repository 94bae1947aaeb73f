"""``python -m tests.packages.advisories``: has a package of requirements/dev.lock a known vulnerability?

Exit code 1 when there is one. Where the database cannot be reached, it says so and passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "dev.lock"
#: How long one query of the database may take before it counts as not reached.
TIMEOUT_S = 10

#: From where to write the answer, to what pip-audit said.
Audit = Callable[[Path], str]


def query(answer: Path) -> str:
    """Run pip-audit on the lock; it asks about each name and version, and installs nothing."""
    options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--timeout", str(TIMEOUT_S)]
    command = [sys.executable, "-m", "pip_audit", "-r", str(LOCK), *options, "--format", "json", "-o", str(answer)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.stderr


def check(audit: Audit = query) -> tuple[int, list[str]]:
    """The exit code, and the lines to print."""
    with tempfile.TemporaryDirectory(prefix="tuimon-audit-") as folder:
        answer = Path(folder, "answer.json")
        said = audit(answer)
        if not answer.exists():
            last = said.strip().splitlines()[-1:] or ["it said nothing"]
            return 0, [f"advisories: the database was not reached ({last[0][:200]})"]
        packages: list[dict[str, Any]] = json.loads(answer.read_text())["dependencies"]
    known = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'none'}"
        for package in packages
        for found in package.get("vulns", ())
    ]
    return int(bool(known)), known or [f"advisories: none for {len(packages)} packages"]


if __name__ == "__main__":
    code, lines = check()
    print("\n".join(lines))
    sys.exit(code)
