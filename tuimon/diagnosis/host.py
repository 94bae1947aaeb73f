"""Rules about the training process itself: side work, and a model that computes on the CPU."""

from __future__ import annotations

from tuimon.diagnosis.evidence import at, hottest_function, percent, row, step_ms, uses_gpu
from tuimon.diagnosis.finding import Finding
from tuimon.session.session import Session

#: Share of the step outside data, forward, backward and optimizer from which it is worth a word (proposal).
SIDE_WORK_SHARE = 0.10
SIDE_WORK_CRITICAL = 0.30
#: Share of forward + backward + optimizer that makes a CPU training compute-bound (proposal).
COMPUTE_SHARE = 0.70


def side_work(session: Session, pid: int) -> Finding | None:
    """Checkpoints, logging, metrics: time outside the phases, with the line that takes most of it.

    Evidence: the exclusive phase "other" of the step; the line from the training thread's samples there.
    """
    table = session.phases(pid)
    other = row(table, "other")
    if table is None or other is None or other.share < SIDE_WORK_SHARE:
        return None
    if other.error is not None and other.share - other.error < SIDE_WORK_SHARE / 2:
        return None
    hot = hottest_function(session.hot_lines(pid, "other"))
    where = f": {at(hot.place)}" if hot else ""
    return Finding(
        rule="side_work",
        severity="critical" if other.share >= SIDE_WORK_CRITICAL else "warning",
        headline=f"{percent(other.share)} of every step is side work outside the model{where}",
        action=(
            f"do {at(hot.place)} less often, asynchronously, or after the epoch"
            if hot
            else "look for logging, metrics or checkpoints in the loop"
        ),
        share_of_step=other.share,
        where=(hot.place,) if hot else (),
        evidence={
            "other_ms_per_step": other.ms_per_step,
            "step_ms": step_ms(table),
            "hot_share": hot.share if hot else None,
        },
        estimated_speedup=1.0 / (1.0 - other.share) if other.share < 1.0 else None,
    )


def compute_bound_cpu(session: Session, pid: int) -> Finding | None:
    """The model computes on the CPU, and that is what takes the time: nothing is wrong with the loop.

    Evidence: share of forward, backward and optimizer; no GPU in use. Abstains when it cannot tell about the GPU.
    """
    table = session.phases(pid)
    if table is None or uses_gpu(session, pid) is not False:
        return None
    compute = {r.name: r.share for r in table.rows if r.name in ("forward", "backward", "optimizer")}
    share = sum(compute.values())
    if share < COMPUTE_SHARE:
        return None
    threads = session.process_threads(pid)
    cpu = threads.cpu_ratio if threads else None
    cores = session.header.cpu_count if session.header else None
    heaviest = max(compute, key=compute.__getitem__)
    hot = hottest_function(session.hot_lines(pid, heaviest))
    on = f" on {cpu:.1f} of {cores} cores" if cpu is not None and cores else ""
    return Finding(
        rule="compute_bound_cpu",
        severity="info",
        headline=f"the model computes on the CPU{on}: {percent(share)} of every step, most of it {heaviest}",
        action="the loop is in order; a GPU, a smaller model or lower precision would make it faster",
        share_of_step=share,
        where=(hot.place,) if hot else (),
        evidence={"cpu_ratio": cpu, **{f"{name}_share": value for name, value in compute.items()}},
    )
