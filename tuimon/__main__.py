"""Entry point: ``tuimon`` and ``python -m tuimon``."""

import sys

from tuimon.cli.main import run_command_line


def main() -> int:
    """Run the command line; returns the exit code."""
    return run_command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
