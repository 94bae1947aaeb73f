"""The findings of a run: moment by moment without flicker, and for the whole run; also those of a recorded run."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tuimon.diagnosis.finding import SEVERITY_ORDER, WIDEST_RANGE, Finding, Fix, VerdictChange, graded, within_share
from tuimon.diagnosis.judging import diagnose, diagnose_run
from tuimon.diagnosis.rulebook import BY_NAME
from tuimon.interval import Interval
from tuimon.records import Exit, Record
from tuimon.session.ranks import ranks_end
from tuimon.session.series import WINDOW_S
from tuimon.session.session import Session
from tuimon.session.state import run_state, stands_still
from tuimon.threshold import HOLD_S, LARGER, REPORTED

#: Seconds that the first verdict must hold: our choice, two windows of stack samples; the finding of small
#: batches, which needs none, came first in half of the short runs and gave way to another within that time.
FIRST_HOLD_S = 5.0
#: Seconds without any finding before NOTHING FOUND is shown: the most demanding rules need GPU events and samples of
#: some windows.
NOTHING_S = 10.0
#: Rules about the present moment, which are shown without delay.
_AT_ONCE = ("hang", "warmup")
#: Seconds over which a gain is averaged: our choice. Each second replaces only a thirtieth of the 30 s behind a gain,
#: but 1 / (1 - share) turns shares of 80 % and 74 %, as far apart as 150 samples may be, into 5x and 3.8x. A longer
#: mean would hold back what the first seconds add.
MEAN_S = 5.0
#: The displayed gain stays while its mean is within this factor of it: our choice, a difference that readers ignore.
SAME_RATIO = 1.1
#: A longer time between two records does not count for any finding, because nothing was recorded in it.
_UNRECORDED_S = 60.0
#: A run with more ranks than this is judged less often, in proportion: one rank takes about 0.15 ms to judge.
RANKS_EACH_S = 16


class Hysteresis:
    """Orders the findings of each moment so that a brief one does not take the first place.

    One moment a second, B not more severe than A::

        found   A  B  A  A  B  B  B  B
        shown   A  A  A  A  A  A  A  B     B has held for HOLD_S
    """

    def __init__(self) -> None:
        self.changes: deque[VerdictChange] = deque(maxlen=100)
        self._primary: Finding | None = None
        self._gone_s: float | None = None  # since when the primary is no longer found
        self._challenger: str | None = None
        self._challenged_s = 0.0  # since when the challenger holds
        self._begun = False  # True once a verdict was given after the warm-up

    def order(self, findings: Sequence[Finding], now_s: float, step: int | None) -> list[Finding]:
        """The findings, led by the primary finding that holds; ``now_s``: since the start of the run.

        A primary that is no longer found stays for at most ``HOLD_S``, even if several others alternate in that time.
        """
        first = findings[0] if findings else None
        primary = self._primary.name if self._primary is not None else None
        found = next((each for each in findings if each.name == primary), None)
        if found is not None:
            self._gone_s = None
        elif self._gone_s is None:
            self._gone_s = now_s
        if first is found and (first is not None or primary is None):
            self._primary, self._challenger = first, None
            return list(findings)
        challenger = first.name if first is not None else ""
        if self._challenger != challenger:
            self._challenger, self._challenged_s = challenger, now_s
        since_s = self._challenged_s if self._gone_s is None else min(self._challenged_s, self._gone_s)
        if self._yields_to(first) or now_s - since_s >= HOLD_S:
            self._change(first, now_s, step)
            return list(findings)
        kept = found if found is not None else self._primary
        rest = [f for f in findings if kept is None or f.rule != kept.rule]
        return [kept, *rest] if kept is not None else []

    def _yields_to(self, first: Finding | None) -> bool:
        """True if ``first`` replaces the primary verdict immediately, without holding for ``HOLD_S``.

        It does if there is no primary yet, or only warm-up; if it is a hang or warm-up; if it adds a cause to the same
        rule; or if it is more severe and takes ``LARGER`` times as much of the step.
        """
        old = self._primary
        if old is None or old.rule == "warmup":
            return True
        if first is None:
            return False
        if first.rule in ("warmup", "hang") or (first.rule == old.rule and old.cause is None):
            return True
        graver = SEVERITY_ORDER[first.severity] < SEVERITY_ORDER[old.severity]
        return graver and (first.share_of_step or 0.0) > LARGER * (old.share_of_step or 0.0)

    def _change(self, first: Finding | None, now_s: float, step: int | None) -> None:
        before, after = self._primary, first
        self._primary, self._challenger, self._gone_s = first, None, None
        if any(f is not None and f.rule == "warmup" for f in (before, after)):
            return
        if before is not None and after is not None and before.rule == after.rule and before.cause is None:
            return
        if self._begun or before is not None:
            self.changes.append(
                VerdictChange(now_s, step, *(each.name if each is not None else None for each in (before, after)))
            )
        self._begun = True


class FirstVerdict:
    """Decides whether the first verdict has held long enough; later changes are left to the hysteresis."""

    def __init__(self) -> None:
        self._is_settled = False
        self._name: str | None = ""  # "": no verdict yet
        self._since_s = 0.0

    def measuring_s(self, session: Session, findings: Sequence[Finding], found: Sequence[Finding]) -> int | None:
        """Seconds for which steps have been measured while no verdict has held; None once one has.

        ``found``: at this moment. Those shown, ``findings``, may be led by one that is no longer found.
        """
        now_s, own = session.now_s, session.over("recent").focus
        begin_s = own.stats.begin_s if own.is_marked else own.stacks.begin_s
        if begin_s is None or math.isinf(begin_s):  # findings before the first step are of harm: shown at once
            return None
        if self._is_settled or session.exit is not None or any(each.rule in _AT_ONCE for each in findings[:1]):
            return None
        name = findings[0].name if findings else None
        if name != self._name or (findings and all(each.name != name for each in found)):
            self._name, self._since_s = name, now_s
        if findings:
            self._is_settled = now_s - self._since_s >= FIRST_HOLD_S
        else:
            self._is_settled = now_s - begin_s >= NOTHING_S
        self._is_settled = self._is_settled or now_s - begin_s >= WINDOW_S
        is_shown = bool(findings) or run_state(session).name == "training"
        return int(now_s - begin_s) if is_shown and not self._is_settled else None


class _Gain(Struct):
    """A gain with its ends, as shown and as running means; in logarithms, so that half and twice are equally far."""

    means: list[float]
    shown: list[float]
    since_s: float
    latest_s: float

    def follow(self, found: list[float], now_s: float) -> None:
        """Update the means with the current gain, weighted by the time since the previous moment."""
        if abs(found[0] - self.means[0]) > math.log(WIDEST_RANGE):  # a real change, not scatter
            self.means, self.shown, self.since_s = found, found, now_s
        passed_s = max(0.0, now_s - self.latest_s)
        held_s = min(MEAN_S, now_s - self.since_s)
        if passed_s and held_s:
            part = passed_s / (held_s + passed_s)
            self.means = [mean + part * (new - mean) for mean, new in zip(self.means, found, strict=True)]
        self.latest_s = now_s
        if max(abs(a - b) for a, b in zip(self.shown, self.means, strict=True)) > math.log(SAME_RATIO):
            self.shown = self.means  # all three together: the ends belong to the estimate


class SettledGains:
    """Smooths the gains of the findings from moment to moment.

    One moment a second, of a fix whose samples scatter::

        found   6.6  4.2  6.2  5.5  6.0
        shown   6.6  5.3  5.3  5.3  5.3
    """

    def __init__(self) -> None:
        self._gains: dict[object, _Gain] = {}

    def settle(self, findings: Sequence[Finding], now_s: float) -> list[Finding]:
        """The findings with the gains to show; findings that are no longer there are forgotten."""
        before, self._gains = self._gains, {}
        settled = []
        for finding in findings:
            fixes = tuple(self._settled_fix(finding, fix, before, now_s) for fix in finding.fixes)
            shown = within_share(replace(finding, fixes=fixes))  # the share next to the gain is the current one
            settled.append(shown if BY_NAME[finding.rule].kind == "harm" else graded(shown))
        return settled

    def _settled_fix(self, finding: Finding, fix: Fix, before: dict[object, _Gain], now_s: float) -> Fix:
        if fix.estimated_speedup is None or fix.gain is None or math.isinf(fix.gain.high):
            return fix
        key = (finding.name, fix.change or fix.action, finding.where)
        logs = [math.log(gain) for gain in (fix.estimated_speedup, *fix.gain)]
        held = self._gains.get(key) or before.get(key) or _Gain(logs, logs, now_s, now_s)
        held.follow(logs, now_s)
        self._gains[key] = held
        if held.shown == logs:
            return fix
        estimated, low, high = map(math.exp, held.shown)
        bound = high / WIDEST_RANGE
        if math.isclose(low, bound):  # rounding alone does not put it below the upper end
            low = math.nextafter(bound, math.inf)
        return fix._replace(estimated_speedup=estimated, gain=Interval(low, high))


class Verdicts:
    """Judges a run from moment to moment, and the whole run at its end.

    Findings about steps are judged again over the whole steady part of the run, so that findings, evidence and phases
    cover the same steps. Rules about a moment (a hang, full memory) have no such sum: they count by how long they held.
    """

    def __init__(self, session: Session | None = None) -> None:
        self.session = session if session is not None else Session()
        self.findings: Sequence[Finding] = ()  # of the latest moment
        self.measuring_s: int | None = None  # seconds of steps measured while no verdict has held; None once one has
        self._of_moment: dict[str, Finding] = {}  # the latest finding of each rule about a moment
        self._held_s = defaultdict[str, float](float)  # for how long such a rule has found one
        self._counted_s = 0.0  # seconds that were judged, without warm-up
        self._last: list[Finding] = []
        self._shown: list[Finding] = []
        self._hysteresis = Hysteresis()
        self.changes: Sequence[VerdictChange] = self._hysteresis.changes  # of the primary verdict, oldest first
        self._first = FirstVerdict()
        self._gains = SettledGains()
        self._judged_s: float | None = None  # when the latest moment was
        self._due_s = 0.0  # computed once per judgement, not for each of thousands of records

    def add(self, record: Record) -> None:
        """Add the next record of a log, and judge if it is time to, as a monitor would have while it was recorded."""
        session = self.session
        before_s = session.now_s or record.t
        if isinstance(record, Exit) and self._judged_s is not None and before_s - self._judged_s >= 1.0:
            self.judge()  # the state at the end, as far as the last records show it
        session.add(record)
        if self._judged_s is None:
            self._judged_s = session.start_s
        if record.t - before_s > _UNRECORDED_S:
            self._judged_s += record.t - before_s
        if record.t < self._due_s or record.t - self._judged_s < 1.0:
            return
        # at first once a second, less often as the log grows: rules take milliseconds per rank, and logs span days
        every_s = max(1.0, (record.t - session.start_s) / 100) * max(1.0, len(session.trainers()) / RANKS_EACH_S)
        self._due_s = self._judged_s + every_s
        if record.t >= self._due_s:
            self.judge()

    def judge(self) -> Sequence[Finding]:
        """The findings of this moment, without flicker; after the end, the last ones.

        While the loop stands still, its steps are not judged. Neither a pause, unless it is a hang, nor the end of one
        rank after another changes the verdict.
        """
        session, now_s = self.session, self.session.now_s
        if session.exit is not None:
            return self.findings
        lasting_s = now_s - self._judged_s if self._judged_s is not None else 0.0
        self._judged_s = now_s
        is_still = stands_still(session)
        if not is_still and ranks_end(session):
            self.findings = self._shown
            return self.findings
        found = self._gains.settle(diagnose(session, is_still=is_still), now_s)
        if lasting_s > 0:
            self._last = found
            self._counted_s += 0.0 if any(finding.rule == "warmup" for finding in found) else lasting_s
            for finding in found:
                if BY_NAME[finding.rule].of_moment:
                    self._of_moment[finding.rule] = finding
                    self._held_s[finding.rule] += lasting_s
        self.measuring_s, self.findings = None, found
        if not is_still or any(finding.rule == "hang" for finding in found):
            pid = session.trainer()
            step = session.step_stats[pid].total if pid in session.step_stats else None
            self.findings = self._shown = self._hysteresis.order(found, now_s - session.start_s, step)
            self.measuring_s = self._first.measuring_s(session, self._shown, found)
        return self.findings

    def judge_run(self) -> list[Finding]:
        """The findings on the whole run; while a run is still in its warm-up, warm-up is the verdict."""
        # rules that held at the end, or for long enough to be a property of the run
        at_end, least_s = {finding.rule for finding in self._last}, REPORTED * self._counted_s
        of_moment = [
            found for rule, found in self._of_moment.items() if rule in at_end or self._held_s[rule] >= least_s
        ]
        findings = diagnose_run(self.session, of_moment)
        if findings or self.session.exit is not None:
            return findings
        return [finding for finding in self._last if finding.rule == "warmup"]


def fold(records: Iterable[Record], verdicts: Verdicts | None = None) -> tuple[Session, list[Finding]]:
    """The Session at the end of a log, and the findings over its steady part; ``verdicts`` collects their changes."""
    verdicts = verdicts or Verdicts()
    for record in records:
        verdicts.add(record)
    return verdicts.session, verdicts.judge_run()
