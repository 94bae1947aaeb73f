"""Entry point: ``tuimon`` and ``python -m tuimon``."""

import sys

from tuimon.cli.own_modules import put_own_modules_first


def main() -> int:
    """Run the command line; returns the exit code."""
    put_own_modules_first()
    from tuimon.cli.main import run_command_line  # noqa: PLC0415  (all that others may have, too)

    return run_command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
