"""Programs whose truth is known, run under tuimon: is what it reports true? ``python -m tests.truth KIND``."""
