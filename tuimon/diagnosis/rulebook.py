"""The rule table: each rule, its evidence and the time that it claims; names derived from it; the order of findings."""

from __future__ import annotations

from tuimon.diagnosis import needs
from tuimon.diagnosis.cells import computes
from tuimon.diagnosis.finding import SEVERITY_ORDER, Finding, FindingJson, likely_gain
from tuimon.diagnosis.rule import Rule
from tuimon.diagnosis.rules import compute, cores, course, hang, input, interpreter, memory, model, ranks, side_work
from tuimon.diagnosis.rules.gpu import bottleneck, devices, waits
from tuimon.records import PASSES, STEP_PHASES

#: In the order of their findings at equal severity and share.
RULES: tuple[Rule, ...] = (
    Rule(course.warmup, "Warm-up", (needs.MARKERS,)),
    Rule(devices.gpu_health, "Errors of the GPU", (needs.GPU_COUNTERS,), kind="harm", of_moment=True),
    Rule(hang.hang, "Hang", (needs.BOUNDARIES,), kind="harm", of_moment=True),
    Rule(
        input.input_bound,
        "Waits for data",
        (needs.STEPS, needs.SAMPLES),
        kind="fault",
        causes=tuple(dict.fromkeys(cause.name for cause in reversed(input.CAUSES) if cause.name is not None)),
        takes=lambda cell, _: cell.phase == "data" and cell.doing not in ("copy", "gc") and "gil" not in cell.via,
    ),
    Rule(
        bottleneck.launch_bound,
        "Launches set the pace",
        (needs.GPU_TIMES,),
        kind="leftovers",
        causes=("allocator",),
        takes=lambda cell, _: cell.phase in (*PASSES, "other") or cell.doing in ("copy", "launch"),
    ),
    Rule(
        waits.sync_point,
        "Synchronisation with the GPU",
        (needs.GPU_TIMES, needs.GPU_WAITS),
        kind="fault",
        takes=lambda cell, _: cell.phase in STEP_PHASES and waits.awaits_no_batch(cell),
    ),
    Rule(
        waits.transfer_bound,
        "Copies to the GPU",
        (needs.GPU_TIMES, needs.GPU_WAITS),
        kind="fault",
        takes=lambda cell, _: cell.doing == "copy",
    ),
    Rule(
        side_work.side_work,
        "Side work in the loop",
        (needs.STEPS, needs.SAMPLES),
        kind="fault",
        causes=("checkpoint", "network", "evaluation"),
        takes=lambda cell, finding: (
            cell.phase == ("eval" if finding.cause == "evaluation" else "other") and cell.doing not in ("gc", "sync")
        ),
        of_unclaimed=side_work.wait_in_pass,
    ),
    Rule(
        interpreter.recompiles,
        "Costs of torch.compile",
        (needs.STEPS, needs.SAMPLES),
        kind="fault",
        causes=("gave_up", "graph_breaks"),
        takes=lambda cell, finding: not finding.cause and interpreter.compiles(cell),
    ),
    Rule(
        compute.slow_setting,
        "A setting slows the steps down",
        (needs.STEPS, needs.SETTINGS),
        kind="fault",
        causes=("anomaly", "bfloat16", "float16", "float64", "tracer", "validation"),
    ),
    Rule(
        compute.optimizer_bound,
        "The optimizer takes long",
        (needs.STEPS,),
        kind="fault",
        takes=lambda cell, _: cell.phase == "optimizer" and not (cell.node and compute.is_product(cell.node)),
    ),
    Rule(
        ranks.straggler_rank,
        "A rank that others wait for",
        (needs.RANKS,),
        kind="late",
        causes=("in_turn",),
        takes=lambda cell, finding: "rank" in cell.via or cell.phase == finding.evidence["phase"],
    ),
    Rule(
        ranks.comm_bound,
        "Communication between ranks",
        (needs.RANKS, needs.SAMPLES),
        kind="fault",
        takes=lambda cell, _: cell.doing == "exchange",
    ),
    Rule(
        interpreter.gil_contention,
        "Waits for the GIL",
        (needs.SAMPLES,),
        kind="fault",
        takes=lambda cell, _: "gil" in cell.via,
    ),
    Rule(
        cores.cpu_oversubscribed,
        "Too few cores",
        (needs.RUN_QUEUE,),
        kind="fault",
        takes=lambda cell, finding: (
            not finding.elsewhere
            and cell.doing == "own"
            and (cell.via == ("core",) or ("core" in cell.via and "kept_to" not in finding.evidence))
        ),
    ),
    Rule(cores.neighbour, "Neighbours", (needs.RUN_QUEUE,), kind="outside"),
    Rule(course.step_time_drift, "Steps grow longer", (needs.STEP_TIMES,), causes=("jump", "more_work", "slower_hour")),
    Rule(
        memory.memory_pressure,
        "Memory or another resource runs out",
        (needs.MACHINE_MEMORY,),
        kind="harm",
        causes=("growing", "copied", "out_of_memory", "exhausted"),
        of_moment=True,
    ),
    Rule(
        interpreter.gc_pauses,
        "Garbage collections",
        (needs.COLLECTIONS,),
        takes=lambda cell, _: cell.doing == "gc" and not cell.via,
    ),
    Rule(memory.allocator_retries, "GPU memory nearly full", (needs.ALLOCATOR,), kind="harm"),
    Rule(devices.throttled, "GPU below its speed", (needs.GPU_COUNTERS,), kind="outside", of_moment=True),
    Rule(
        devices.idle_gpu,
        "GPUs that do nothing",
        (needs.GPU_COUNTERS,),
        causes=("unused", "held", "model_on_cpu", "context"),
        takes=lambda cell, finding: finding.cause == "model_on_cpu" and cell.phase in PASSES,
        of_moment=True,
    ),
    Rule(devices.placement, "Cores far from the GPU", (needs.NUMA_NODES,), of_moment=True),
    Rule(
        bottleneck.low_precision_unused,
        "Tensor cores unused",
        (needs.GPU_COUNTERS, needs.TENSOR_ACTIVITY),
        kind="fault",
    ),
    Rule(
        waits.unexplained_idle,
        "GPU idle, cause unknown",
        (needs.GPU_TIMES,),
        kind="no_fault",
        takes=lambda cell, _: cell.phase in STEP_PHASES,
    ),
    Rule(waits.queue_full, "The GPU's queue is full", (needs.GPU_TIMES, needs.GPU_WAITS)),
    Rule(waits.spin_wait, "Busy waiting for the GPU", (needs.GPU_TIMES,), takes=lambda cell, _: cell.doing == "sync"),
    Rule(
        bottleneck.compute_bound,
        "The GPU is the bottleneck",
        (needs.GPU_TIMES,),
        kind="no_fault",
        causes=(
            *("few_sms", "memory_traffic", "few_products", "low_power", "other_streams"),
            *("padding", "repeated_backward", "unused_gradients", "slices"),
        ),
        of_unclaimed=bottleneck.keeps_busy,
    ),
    Rule(
        model.compute_bound_cpu,
        "Computes on the CPU",
        (needs.STEPS,),
        kind="no_fault",
        causes=("python", "page_faults", "padding", "repeated_backward", "unused_gradients", "slices"),
        takes=lambda cell, finding: (
            computes(cell)
            and finding.cause != "python"
            and (finding.cause not in ("repeated_backward", "unused_gradients", "slices") or cell.phase == "backward")
        ),
        of_unclaimed=model.on_the_cpu,
    ),
    Rule(bottleneck.small_batch, "Room for a larger batch", (needs.GPU_COUNTERS, needs.GPU_LOAD), kind="no_fault"),
    Rule(hang.not_ended, "Job does not end", (needs.BOUNDARIES,), of_moment=True),
)
BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}

SEVERITIES: frozenset[str] = frozenset(SEVERITY_ORDER)
RULE_NAMES: frozenset[str] = frozenset(BY_NAME)
CAUSES: frozenset[str] = frozenset(cause for rule in RULES for cause in rule.causes)
#: The names that ``--fail-on`` accepts.
FINDING_NAMES: frozenset[str] = RULE_NAMES | CAUSES | SEVERITIES


def ranked(findings: list[Finding]) -> list[Finding]:
    """The findings by severity, then by gain: the first is what to fix first; among equals, a threat to the run leads.

    Causes outside the run come after those inside. A loop in order, with its GPU or CPU as the bottleneck, comes before
    benign findings, and before those not worth a fix.
    """
    return sorted(findings, key=_order_of)


def is_minor(finding: Finding | FindingJson) -> bool:
    """True if a finding's fix gains too little to be the headline of a run."""
    return finding.severity == "info" and BY_NAME[finding.rule].is_fault


def _order_of(finding: Finding) -> tuple[int, int, float]:
    kind = BY_NAME[finding.rule].kind
    severity = "info" if kind == "no_fault" and finding.severity == "benign" else finding.severity
    return (
        SEVERITY_ORDER[severity],
        {"harm": 0, "outside": 3}.get(kind, 2 if is_minor(finding) else 1),
        -likely_gain(finding),
    )
