"""The rule about the input: does the training wait for its data, and why."""

from __future__ import annotations

from tuimon.diagnosis.claims import CONFIDENCE, Claim, claim_on, is_sure, without
from tuimon.diagnosis.evidence.batches import ALIKE, HAND_OVER_MS, LEAST_BYTES
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.steps import SLOW_RATIO
from tuimon.diagnosis.evidence.workers import SATURATED_BUSY
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.interval import Interval
from tuimon.diagnosis.rule import SAMPLES, STEPS, Rule
from tuimon.diagnosis.rules.input.advice import fixes_for
from tuimon.diagnosis.rules.input.cause import Cause, cause_of, long_starts
from tuimon.diagnosis.threshold import LARGE, MOST, NEARLY_ALL, REPORTED, SMALL
from tuimon.diagnosis.words import idle_part, percent
from tuimon.session.rows import PhaseRow

#: Causes that the advice distinguishes, as findings name them.
_OWN_NAMES: dict[str | None, str | None] = {
    "slow_thread": "hand_rolled_loader",
    "messages": "hand_rolled_loader",
    "starting": None,
    "held_back": "slow_item",
}


def input_bound(evidence: Evidence) -> Finding | None:
    """The step waits for data."""
    table, data = evidence.phases, evidence.phase("data")
    if table is None or data is None or data.share < REPORTED or evidence.awaits_gpu_times:
        return None
    data = without(evidence, data, "copy", "gc")
    wait = claim_on(evidence, data)
    if not is_sure(evidence, wait.share, error=data.error):
        return None
    return _finding(evidence, data, wait, cause_of(evidence, table, data))


def _finding(evidence: Evidence, data: PhaseRow, wait: Claim, cause: Cause) -> Finding:
    of, when = ("each step", "") if long_starts(evidence) is None else ("the time", " at the start of epochs")
    waits = f"{percent(wait.share)} of {of} waits for data{when}"
    if wait.on_gpu is not None:
        waits = f"the GPU waits {idle_part(wait.on_gpu)} of {of} for data{when}"
    places = (cause.hot, evidence.hottest_in("data"))
    best, *others = fixes_for(cause.name, cause.hot, evidence, wait.lost)
    by_policy = cause.name == "rollout" and evidence.rollout is not None and evidence.rollout.is_by_policy
    return Finding(
        severity="info" if by_policy and best.estimated_speedup is None else "warning",
        headline=f"{waits}{cause.clause}",
        fixes=(best, *(fix for fix in others if fix.estimated_speedup is not None)),
        cause=_OWN_NAMES.get(cause.name, cause.name),
        share_of_step=wait.share,
        where=tuple(dict.fromkeys(p for f in places if f is not None for p in (f.maker, f.place) if p)),
        evidence=_figures(evidence, data, cause, wait.on_gpu),
    )


def _figures(
    evidence: Evidence, data: PhaseRow, cause: Cause, on_gpu: Interval | None
) -> dict[str, float | int | str | None]:
    workers, starting = evidence.workers, long_starts(evidence)
    return {
        "data_ms_per_step": data.ms_per_step,
        "step_ms": evidence.step_ms,
        "workers": workers.number,
        "worker_cpu_ratio": workers.cpu_ratio,
        "worker_busy_ratio": workers.busy_ratio if cause.name != "rollout" else None,  # they may wait for a message
        "read_every_epoch": evidence.read_again.text if evidence.read_again is not None else None,
        "hot_share": cause.hot.share if cause.hot and cause.hot.samples else None,
        **(
            {"fetch_ms": evidence.loader.wait_ms, "batch_ms": workers.batch_ms}
            if cause.name == "hand_over" and evidence.loader is not None
            else {}
        ),
        **(
            {f"{part}_share": of_data for part, of_data in evidence.rollout._asdict().items()}
            if cause.name == "rollout" and evidence.rollout is not None
            else {}
        ),
        "epoch_start_s": starting.start_s if starting else None,
        "epoch_end_s": starting.end_s if starting else None,
        **(on_gpu.as_evidence("gpu_waits") if on_gpu is not None else {}),
    }


INPUT_BOUND = Rule(
    title="Waits for data",
    judge=input_bound,
    explanation=(
        "The step waits for its data. It rests on the share of the step inside the loader's __next__ (markers), or on"
        " samples before the first forward line in a loop without a DataLoader; with GPU times, only the GPU's idle"
        " time in it counts, as launches that run ahead cover the rest. The cause follows from the workers' CPU,"
        " markers and samples. Data that comes from an environment or from the model itself is a rollout; if the model"
        " takes most of that, it is only mentioned, unless more environments at once surely gain."
    ),
    needs=(STEPS, SAMPLES),
    thresholds=(
        *(REPORTED, SATURATED_BUSY, MOST, LARGE, SMALL, HAND_OVER_MS, SLOW_RATIO, NEARLY_ALL),
        *(ALIKE, LEAST_BYTES, *CONFIDENCE),
    ),
    causes=(
        "no_workers",
        "workers_saturated",
        "slow_item",
        "slow_collate",
        "sampler",
        "disk_wait",
        "idle_workers",
        "hand_rolled_loader",
        "hand_over",
        "rollout",
    ),
    contradicts_order=True,
)
