"""One file for each command, with ``main(argv) -> exit code``."""
