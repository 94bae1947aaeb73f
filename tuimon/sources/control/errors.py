"""Why an order to the agent cannot be given, or was not carried out."""

from __future__ import annotations

from tuimon.errors import TuimonError


class ControlError(TuimonError):
    """The agent in the training does not carry out an order."""


class NoAgent(ControlError):
    """There is no agent in the process that takes orders."""


class TooOld(NoAgent):
    """The agent in the process is of an older tuimon."""


class Busy(ControlError):
    """The agent does this already, for another monitor."""


class NoAnswer(ControlError):
    """The training has not come to the end of a backward pass since."""


class Refused(ControlError):
    """The agent cannot do it there."""


class Failed(ControlError):
    """The agent has tried, and something went wrong; or the process has ended meanwhile."""
