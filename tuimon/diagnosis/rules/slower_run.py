"""The rule about a run that is slower than earlier ones of the same command."""

from __future__ import annotations

from tuimon.diagnosis.comparison.earlier import since_earlier
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.rule import STEP_TIMES, Rule
from tuimon.diagnosis.threshold import SAME_WITHIN, SMALL
from tuimon.diagnosis.words import percent
from tuimon.text import ms_text


def slower_run(evidence: Evidence) -> Finding | None:
    """Steps take certainly longer than in earlier runs of the same command, on the same GPUs with the same batches."""
    if not evidence.earlier_runs or evidence.level is None:
        return None
    now = evidence.level
    since = since_earlier(evidence.earlier_runs, now.step_ms, on_cores=not evidence.uses_gpu)
    if since is None or since.longer.low < 1 + SAME_WITHIN:
        return None
    before, longer = since.before, now.step_ms / since.before.step_ms
    slower = f"{longer:.1f}x" if longer >= 2 else percent(longer - 1)
    phase = now.grown_since(before)
    hot = evidence.hottest_in(phase.name)
    more_work = evidence.setting.batch_size is None and now.does_more_work_than(before)
    action = "check what has changed since: the code, the data and where it lies, versions, settings"
    return Finding(
        rule="slower_run",
        severity="info" if more_work else "warning",
        headline=(
            f"{slower} slower than the last {since.runs} runs of this command:"
            f" {phase.name} {ms_text(phase.before_ms)} -> {ms_text(phase.now_ms)}"
        ),
        fixes=(Fix(action) if more_work else Fix(action, longer, *since.longer),),
        share_of_step=1.0 - 1.0 / longer,
        where=(hot.place,) if hot is not None else (),
        evidence={
            "earlier_runs": since.runs,
            "before_ms": before.step_ms,
            "now_ms": now.step_ms,
            "grown_phase": phase.name,
            "grown_ms": phase.now_ms - phase.before_ms,
        },
    )


RULES = (
    Rule(
        name="slower_run",
        title="Slower than before",
        order=250,
        judge=slower_run,
        explanation=(
            "Steps take longer than in earlier runs of the same command in the same folder, as the history on this"
            " machine has them. Only runs on as many cores and ranks, on the same GPUs and with the same batch size are"
            " compared, without what threads waited for a core; runs that other programs held up are neither kept nor"
            " compared. How the earlier runs differ from one another decides what is certain. The phase that has grown"
            " most is named. Without a known batch size, forward and backward that have grown alike may be more work:"
            " that is information."
        ),
        needs=(STEP_TIMES,),
        thresholds=(SAME_WITHIN, SMALL),
        from_outside=True,  # what else is found says why
    ),
)
