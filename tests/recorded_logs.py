"""Where the recorded logs are: those of the tests alone, and those that ship with tuimon for ``tuimon demo``."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "tests" / "data" / "logs", ROOT / "tuimon" / "recorded_runs")
LOGS = sorted((path for folder in FOLDERS for path in folder.glob("*.gz")), key=lambda path: path.name)


def log_path(name: str) -> Path:
    """The log of that name, which is given without its ending."""
    return next(path for path in LOGS if path.name == f"{name}.jsonl.gz")
