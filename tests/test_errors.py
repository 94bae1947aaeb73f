"""What is said in errors."""

from tuimon.errors import NotALog, TuimonError


def test_names_in_an_error_are_made_safe_wherever_it_is_shown():
    error = NotALog("a\x1b[2J\x9b\u202eb is no log", "try \x1b]52;c;ZXZpbA==\x07c\nd")
    assert error.message == str(error) == "ab is no log"
    assert error.hint == "try c d"
    assert TuimonError("as it is").hint is None
