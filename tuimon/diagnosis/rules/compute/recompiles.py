"""The rule about a model that torch.compile compiles again and again while it trains."""

from __future__ import annotations

from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.lines import hottest_place
from tuimon.diagnosis.evidence.samples import MIN_SAMPLES, ThreadSamples
from tuimon.diagnosis.evidence.steps import mean_step_ms
from tuimon.diagnosis.finding import Finding
from tuimon.diagnosis.ledger.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.needs import SAMPLES, STEPS
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.step_model.measured import host_model
from tuimon.diagnosis.threshold import REPORTED
from tuimon.diagnosis.words import percent


def recompiles(evidence: Evidence) -> Finding | None:
    """The training thread compiles its model after the first steps, too: it does so for each new input."""
    main = evidence.stacks.main
    share = _share(main)
    if not is_sure(evidence, share) or not is_sure(evidence, _share(evidence.samples_since_first_step)):
        return None
    hot = hottest_place((sample.place, sample.count) for sample in main.in_steps.stacks if sample.compiles)
    model = host_model(evidence)
    fix = model.without(
        "compiling",
        "keep the shapes and numbers that reach the compiled model alike: pad to few lengths, pass numbers as tensors,"
        " or compile with dynamic=True; TORCH_LOGS=recompiles names what differs",
        model.own_part(share),
    )
    return Finding(
        rule="recompiles",
        severity="warning",
        headline=f"{percent(share)} of each step compiles the model anew",
        fixes=(fix,),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "compiling_share": share,
            "step_ms": mean_step_ms(evidence.phases) if evidence.phases is not None else None,
        },
    )


def _share(samples: ThreadSamples) -> float:
    return samples.in_steps.share_where(lambda sample: sample.compiles) or 0.0


RULES = (
    Rule(
        name="recompiles",
        title="Compiles again and again",
        order=65,
        judge=recompiles,
        explanation=(
            "torch.compile compiles the model anew while it trains: for each new shape, or each new value of a Python"
            " number that it has taken for a constant. It rests on samples of the training thread inside the compiler;"
            " the first compilation does not count."
        ),
        needs=(STEPS, SAMPLES),
        thresholds=(REPORTED, MIN_SAMPLES, *CONFIDENCE),
        contradicts_order=True,
    ),
)
