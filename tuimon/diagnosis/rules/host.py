"""Rules about the training process itself: side work, evaluation, the optimizer, a model that computes on the CPU."""

from __future__ import annotations

from tuimon.diagnosis.evidence.common import (
    HotFunction,
    at,
    cpu_count,
    hottest_function,
    percent,
    row,
    settled,
    step_ms,
    uses_gpu,
)
from tuimon.diagnosis.evidence.evaluation import evaluation_function, model_share, side_function
from tuimon.diagnosis.evidence.gpu import awaited, gpu_idle, noticed, picture_of
from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session

#: Share of the step outside data, forward, backward and optimizer from which it is worth a word (proposal).
SIDE_WORK_SHARE = 0.10
SIDE_WORK_CRITICAL = 0.30
#: Share of wall time in evaluation from which it is: a fifth is common, a third and more costs (proposal).
EVALUATION_SHARE = 0.35
EVALUATION_CRITICAL = 0.60
#: Side work that runs the model, in a loop where no fetch tells evaluation from it: less than a fifth is common.
UNMARKED_EVALUATION_SHARE = 0.20
#: Share of the step in the optimizer; Adam on a dense model takes 5 to 15 % (measured on small models, CPU).
OPTIMIZER_SHARE = 0.30
#: Share of forward + backward + optimizer that makes a CPU training compute-bound (proposal).
COMPUTE_SHARE = 0.70


def side_work(session: Session, pid: int) -> Finding | None:
    """Checkpoints, logging, metrics, evaluation: time outside the phases, with the line that takes most of it.

    Evidence: the exclusive phase "other" of the step, or the time in evaluation beside the steps, whichever takes more;
    the line from the training thread's samples there. With GPU events, side work counts as far as the GPU idles.
    """
    table = session.phases(pid)
    other, eval_row = row(table, "other"), row(table, "eval")
    if table is None or other is None:
        return None
    in_steps = 1.0 - (eval_row.share if eval_row else 0.0)
    if awaited(session, pid):
        return None
    if eval_row is not None and eval_row.share >= max(EVALUATION_SHARE, other.share * in_steps):
        return _evaluation(session, pid, eval_row.share, eval_row.ms_per_step)
    on_gpu = noticed(session, pid, other)
    share = other.share if on_gpu is None else on_gpu[1]
    if share < SIDE_WORK_SHARE or (share < SIDE_WORK_CRITICAL and not settled(table)):
        return None
    if other.error is not None and other.share - other.error < SIDE_WORK_SHARE / 2:
        return None
    if other.estimated and share < UNMARKED_EVALUATION_SHARE and model_share(session, pid) >= 0.5:
        return None
    hot = side_function(session, pid)
    after = 1.0 - (share if on_gpu is None else on_gpu[0]) * (hot.share if hot else 1.0)
    return Finding(
        rule="side_work",
        severity="critical" if share >= SIDE_WORK_CRITICAL else "warning",
        headline=(
            f"{percent(share)} of every step {'is' if on_gpu is None else 'the GPU waits for'} side work outside the"
            f" model{_naming(hot)}"
        ),
        action=(
            f"do {at(hot.place)} less often, asynchronously, or after the epoch"
            if hot
            else "look for logging, metrics or checkpoints in the loop"
        ),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={
            "other_ms_per_step": other.ms_per_step,
            "step_ms": step_ms(table),
            "hot_share": hot.share if hot else None,
            **gpu_idle(on_gpu),
        },
        estimated_speedup=1.0 / after if 0.0 < after < 1.0 else None,
    )


def _evaluation(session: Session, pid: int, share: float, ms_per_batch: float | None) -> Finding:
    hot = evaluation_function(session, pid)
    return Finding(
        rule="side_work",
        severity="critical" if share >= EVALUATION_CRITICAL else "warning",
        cause="evaluation",
        headline=f"{percent(share)} of the time goes to evaluation, not training{_naming(hot)}",
        action="evaluate less often, or on a part of the data",
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={"eval_share": share, "eval_ms_per_batch": ms_per_batch, "hot_share": hot.share if hot else None},
        estimated_speedup=1.0 / (1.0 - share) if share < 1.0 else None,
    )


def optimizer_bound(session: Session, pid: int) -> Finding | None:
    """The update takes an unusual part of the step: many small parameters, or a dense update of few touched rows.

    Evidence: the exclusive phase "optimizer", on the GPU's clock where it is the bottleneck. What a cheaper update
    would leave is not measured: no gain is told.
    """
    table = session.phases(pid)
    optimizer = row(table, "optimizer")
    if table is None or optimizer is None or awaited(session, pid):
        return None
    picture = picture_of(session, pid)
    share = picture.share("optimizer") if picture is not None and picture.is_bottleneck else optimizer.share
    if share < OPTIMIZER_SHARE:
        return None
    hot = hottest_function(session.hot_lines(pid, "optimizer"))
    return Finding(
        rule="optimizer_bound",
        severity="warning",
        headline=f"{percent(share)} of every step is the optimizer's update{_naming(hot)}",
        action=(
            "a fused or foreach optimizer, sparse gradients for large embeddings (sparse=True, SparseAdam),"
            " or an update every few batches"
        ),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={"optimizer_ms_per_step": optimizer.ms_per_step, "step_ms": step_ms(table)},
    )


def compute_bound_cpu(session: Session, pid: int) -> Finding | None:
    """The model computes on the CPU, and that is what takes the time: nothing is wrong with the loop.

    Evidence: share of forward, backward and optimizer; no GPU in use. Abstains when it cannot tell about the GPU, or
    while nothing but markers divides a loop without a DataLoader.
    """
    table = session.phases(pid)
    if table is None or uses_gpu(session, pid) is not False:
        return None
    compute = {r.name: r.share for r in table.rows if r.name in ("forward", "backward", "optimizer")}
    share = sum(compute.values())
    unsure = max((r.error for r in table.rows if r.name in compute and r.error is not None), default=0.0)
    if share < COMPUTE_SHARE or share - unsure < COMPUTE_SHARE / 2:
        return None
    threads = session.process_threads(pid)
    cpu = threads.cpu_ratio if threads else None
    heaviest = max(compute, key=compute.__getitem__)
    hot = hottest_function(session.hot_lines(pid, heaviest))
    on = f" on {cpu:.1f} of {cpu_count(session)} cores" if cpu is not None and session.header else ""
    return Finding(
        rule="compute_bound_cpu",
        severity="info",
        headline=f"the model computes on the CPU{on}: {percent(share)} of every step, most of it {heaviest}",
        action=_faster(session),
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={"cpu_ratio": cpu, "step_ms": step_ms(table), **{f"{name}_share": s for name, s in compute.items()}},
    )


def _faster(session: Session) -> str:
    idle = next((gpu for gpu in session.gpus() if gpu.latest.parent_uuid is None and not gpu.used_by_run), None)
    if idle is not None:
        return (
            f"the loop is in order, but GPU {idle.latest.index} of this machine ({idle.latest.name}) is not used:"
            " move the model and each batch to it (.to('cuda')); torch must be a build with CUDA"
        )
    return "the loop is in order; a GPU, a smaller model or lower precision would make it faster"


def _naming(hot: HotFunction | None) -> str:
    return f": {at(hot.place)}" if hot else ""
