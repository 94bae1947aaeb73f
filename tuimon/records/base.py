"""The parts that all records share: the ranges of their figures, the phases of a step, a place in the code."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

# Ranges of the figures in a log, checked when a line is decoded, not when a record is made. Anything else is damage.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # any count, also of ns and bytes
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**62)]  # the count of a row that is only written if there are any
Index = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)]
Pid = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Cores = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
Bucket = Annotated[int, msgspec.Meta(ge=0, le=5000)]  # a ``length_bucket``: lengths up to 1e12 s
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # s: up to the year 5138
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Window = Annotated[float, msgspec.Meta(gt=0, le=1e9)]  # s
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
Signed = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
BOUNDED = msgspec.Meta(max_length=10_000)  # rows in a list of one record; tuimon writes some dozens

#: The exclusive phases of a step, in the order in which they are shown.
StepPhase = Literal["data", "forward", "backward", "optimizer", "other"]
STEP_PHASES: tuple[StepPhase, ...] = get_args(StepPhase)
PHASES = (*STEP_PHASES, "eval")
#: Time that markers cannot assign to a phase: from an update to the next backward in a loop without a DataLoader.
#: The session divides it among the phases of ``DIVIDED``, by stack samples.
BETWEEN = "between"
DIVIDED: tuple[StepPhase, ...] = ("data", "forward", "other")
#: The phases in which only the model computes, those that only a training has, and both together.
MODEL: tuple[StepPhase, ...] = ("forward", "backward")
TRAINING_PHASES: tuple[StepPhase, ...] = ("backward", "optimizer")
PASSES: tuple[StepPhase, ...] = ("forward", "backward", "optimizer")

Phase = Literal["data", "forward", "backward", "optimizer", "other", "eval", "between"]


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="type", omit_defaults=True):
    """Common to all records: ``t`` in seconds of the monotonic clock, ``pid`` (0: the machine)."""

    t: Moment
    pid: Pid


class Place(NamedTuple):
    """A line of the user's code, as findings and panes name it."""

    file: str
    line: Count
    function: str
    source: str = ""

    @property
    def code(self) -> tuple[str, str]:
        """Its function, by file and name."""
        return self.file, self.function
