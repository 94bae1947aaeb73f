"""What speedscope demands of a file, as far as sampled profiles go; written from its published schema.

https://www.speedscope.app/file-format-schema.json
"""

from typing import Any

UNITS = ("bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds")


def check(file: Any) -> None:
    """Fails where speedscope would refuse or misread the file."""
    assert isinstance(file, dict)
    assert file.keys() <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert all(isinstance(file[key], str) for key in ("name", "exporter") if key in file)
    frames = file["shared"]["frames"]
    for frame in frames:
        assert frame.keys() <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str)
        assert isinstance(frame.get("file", ""), str)
        assert all(type(frame[key]) in (int, float) for key in ("line", "col") if key in frame)
    assert isinstance(file["profiles"], list)
    if "activeProfileIndex" in file:
        assert file["activeProfileIndex"] in range(len(file["profiles"]))
    for profile in file["profiles"]:
        _sampled(profile, len(frames))


def _sampled(profile: Any, frames: int) -> None:
    assert profile["type"] == "sampled"
    assert profile.keys() == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    assert isinstance(profile["name"], str)
    assert profile["unit"] in UNITS
    assert profile["startValue"] <= profile["endValue"]
    assert len(profile["samples"]) == len(profile["weights"])
    assert all(type(weight) in (int, float) and weight >= 0 for weight in profile["weights"])
    assert sum(profile["weights"]) <= profile["endValue"] - profile["startValue"]
    for stack in profile["samples"]:
        assert all(type(number) is int and 0 <= number < frames for number in stack)
