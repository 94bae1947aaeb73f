"""Entry point: ``tuimon`` and ``python -m tuimon``."""

import os
import site
import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    put_own_modules_first()
    from tuimon.cli.main import run_command_line  # noqa: PLC0415  (others may have modules of these names)

    return run_command_line(sys.argv[1:])


def put_own_modules_first() -> None:
    """Take the working directory and the script's folder off ``sys.path``, and put the folders in PYTHONPATH last.

    These belong to the training: a ``msgspec.py`` there is not ours. A package that our environment lacks is still
    found in PYTHONPATH; pip relies on that and installs no package that it finds there. A folder of our environment, or
    in which tuimon itself was found (``pip install --target``), stays where it is.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed
        here = ""
    listed = {_whole(folder, here) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder}
    first = {here, _whole(os.path.dirname(os.path.realpath(sys.argv[0])), here)}
    package = os.path.dirname(os.path.abspath(__file__))
    own = {os.path.dirname(package), os.path.dirname(os.__file__), *site.getsitepackages(), site.USER_SITE}
    kept: list[str] = []
    last: list[str] = []
    for entry in sys.path:
        folder = _whole(entry, here)
        if folder in own or folder not in first | listed:
            kept.append(entry)
        elif folder in listed:
            last.append(entry)
    sys.path[:] = kept + last


def _whole(folder: str, here: str) -> str:
    return os.path.normpath(os.path.join(here, folder))


if __name__ == "__main__":
    sys.exit(main())
