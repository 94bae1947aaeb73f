"""What a training waits for: rules judge the evidence that a Session holds."""

from tuimon.diagnosis.judging import diagnose, judge
from tuimon.diagnosis.unjudged import Unjudged, unjudged

__all__ = ["Unjudged", "diagnose", "judge", "unjudged"]
