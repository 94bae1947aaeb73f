"""The rule about side work: what the loop does beside the training, evaluation included."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.gpu.steps import GPU_CLOCK_WAIT_S
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.ledger.claims import CONFIDENCE
from tuimon.diagnosis.needs import SAMPLES, STEPS
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules.evaluation import EVALUATION_SHARE, evaluation_work
from tuimon.diagnosis.rules.outside_phases import work_outside_phases
from tuimon.diagnosis.threshold import LARGE, NEARLY_ALL, REPORTED


def side_work(evidence: Evidence) -> Finding | None:
    """Checkpoints, logging, metrics, evaluation: time outside the phases, with the line that takes most of it."""
    table, other, evaluation = evidence.phases, evidence.phase("other"), evidence.phase("eval")
    if table is None or other is None or evidence.awaits_gpu_times:
        return None
    in_steps = 1.0 - (evaluation.share if evaluation else 0.0)
    if (found := evaluation_work(evidence, other.share * in_steps)) is not None:
        return found
    return work_outside_phases(evidence, table, other)


RULES = (
    Rule(
        name="side_work",
        title="Side work in the loop",
        order=60,
        judge=side_work,
        explanation=(
            "Checkpoints, logging, metrics or evaluation take time beside the training. It rests on the phase outside"
            " data, forward, backward and optimizer, or on the time in evaluation, whichever takes more, and names the"
            " line from the training thread's samples there. With GPU times, side work counts as far as the GPU idles."
        ),
        needs=(STEPS, SAMPLES),
        thresholds=(REPORTED, EVALUATION_SHARE, LARGE, NEARLY_ALL, *CONFIDENCE, GPU_CLOCK_WAIT_S),
        causes=("checkpoint", "network", "evaluation"),
        contradicts_order=True,
    ),
)
