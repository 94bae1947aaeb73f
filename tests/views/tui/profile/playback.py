"""A monitor that plays the samples of a training."""

from tests.session.samples import profiles
from tests.views.streams import Playback


def play(seconds=3, later=0):
    records = profiles.records(seconds + later)
    t_end = seconds + 1.0
    now = [record for record in records if record.t <= t_end]
    return Playback(now, later=[[record for record in records if record.t == t_end + n + 1] for n in range(later)])
