"""A monitor that plays literal records."""

from tuimon.diagnosis.verdicts import Verdicts
from tuimon.session.session import Session

MAIN = 4242  # the pid of the training


class Output:
    """Output that a test writes."""

    def __init__(self, data=b""):
        self.data = data
        self.skipped_bytes = 0

    def read(self, max_bytes):
        data, self.data = self.data, b""
        self.skipped_bytes += max(len(data) - max_bytes, 0)
        return data[-max_bytes:]


class Launched:
    """A run that the test pretends to have launched."""

    pid = MAIN


class Playback:
    """A monitor over literal records: each tick folds the next batch."""

    def __init__(self, records=(), findings=(), *, output=None, launched=None, later=()):
        self.session = Session()
        self.verdicts = Verdicts(self.session)
        self.findings = list(findings)
        self.output = output
        self.launched = launched
        self.closeup = None
        self.hooks = None
        self.ending = None
        self.end_requested = False
        self.ticks = 0
        self.later = list(later)
        for record in records:
            self.session.add(record)

    @property
    def ended(self):
        return self.session.exit is not None

    @property
    def exit_code(self):
        return self.session.exit.exit_code if self.session.exit else None

    read_ratio = None
    is_live = True
    measured_s = None  # seconds for which no verdict has held

    def measuring_s(self, unix_s):
        return self.measured_s

    def is_followed(self, unix_s):
        return False

    def tick(self):
        self.ticks += 1
        if not self.later:
            return False
        for record in self.later.pop(0):
            self.session.add(record)
        return True

    def begin_end(self):
        self.end_requested = True
        self.ending = "sent SIGINT; SIGTERM in 5 s"

    def stop(self):
        pass
