"""The rule about a model that computes on the CPU, with or without Python code in it."""

from __future__ import annotations

from tuimon.diagnosis.evidence.devices import is_free, runs_nothing, whole_gpus
from tuimon.diagnosis.evidence.evidence import Evidence
from tuimon.diagnosis.evidence.steps import mean_step_ms
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.diagnosis.ledger.claims import CONFIDENCE, is_sure
from tuimon.diagnosis.needs import STEPS
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules.compute.model_python import LOOKS, SMALL_PART, python_in_model
from tuimon.diagnosis.rules.compute.settings import lower_is_faster
from tuimon.diagnosis.rules.debug_settings import advice_on_debugging
from tuimon.diagnosis.threshold import MOST, REPORTED
from tuimon.diagnosis.words import percent


def compute_bound_cpu(evidence: Evidence) -> Finding | None:
    """The model computes on the CPU, and that is what takes the time: nothing is wrong with the loop.

    But for Python code that the model runs, which no device makes faster.
    """
    table = evidence.phases
    if table is None or evidence.uses_gpu is not False:
        return None
    if (found := python_in_model(evidence, table)) is not None:
        return found
    compute = {r.name: r.share for r in table.rows if r.name in ("forward", "backward", "optimizer")}
    share = sum(compute.values())
    unsure = max((r.error for r in table.rows if r.name in compute and r.error is not None), default=0.0)
    if not is_sure(evidence, share, MOST, unsure, early=False):
        return None
    cpu, cores = evidence.threads.cpu_ratio if evidence.threads else None, evidence.run.known_cores
    heaviest = max(compute, key=compute.__getitem__)
    hot = evidence.hottest_in(heaviest)
    on = f" ({cpu:.1f} of {cores} cores)" if cpu is not None and cores is not None else ""
    return Finding(
        rule="compute_bound_cpu",
        severity="info",
        headline=f"the model computes on the CPU for {percent(share)} of each step{on}, mostly {heaviest}",
        fixes=(Fix(advice_on_debugging("compute_bound_cpu", evidence) or _faster(evidence)),),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "cpu_ratio": cpu,
            "step_ms": mean_step_ms(table),
            **{f"{name}_share": s for name, s in compute.items()},
        },
    )


def _faster(evidence: Evidence) -> str:
    gpus = whole_gpus(evidence.run.gpus)
    idle = next((row.latest for row in gpus if is_free(row) or (row.used_by_run and runs_nothing(row))), None)
    if idle is not None:
        return (
            f"move the model and each batch to GPU {idle.index} (.to('cuda')): this machine's {idle.name} is not used;"
            " torch must be a build with CUDA"
        )
    lower = (
        ", a smaller model or torch.autocast('cpu', torch.bfloat16)"
        if lower_is_faster(evidence)
        else " or a smaller model"
    )
    return f"use a GPU{lower}: the loop is in order"


RULES = (
    Rule(
        name="compute_bound_cpu",
        title="Computes on the CPU",
        order=230,
        judge=compute_bound_cpu,
        explanation=(
            "The model computes on the CPU, and that takes most of the step: the loop is in order. It rests on"
            " the shares of forward, backward and optimizer while no GPU is used, and abstains if that is unknown. If"
            " samples find one function of the user's in much of forward and backward, and it holds the GIL meanwhile,"
            " that is Python, which no GPU makes faster: it is named, with its cost."
        ),
        needs=(STEPS,),
        thresholds=(MOST, REPORTED, SMALL_PART, LOOKS, *CONFIDENCE),
        causes=("python",),
    ),
)
