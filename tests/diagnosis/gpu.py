"""GPU trainings for rules: what the simulator records, with the samples, threads and counters that belong to it."""

from tests.gpu_simulator.sessions import UUID, records
from tests.gpu_simulator.training import PID
from tests.session.records import by_rule, extend, frames, stacks, threads
from tuimon.records import Gpu, GpuPhase, GpuTime, Lead, Steps
from tuimon.session.session import Session

FETCH, FORWARD, MODULE, BACKWARD, IN_BACKWARD, STEP, IN_STEP, ITEM, TO_DEVICE, SAVE = range(10)
FLOAT, FORWARD_ITEM, IN_FETCH, SCALER, MAKE, CONVOLUTION = range(10, 16)

LINES = frames(
    ("/home/me/train.py", 40, "main", "for x, y in loader:", True),
    ("/home/me/train.py", 42, "main", "loss = model(x)", True),
    ("/lib/site-packages/torch/nn/modules/module.py", 99, "_call_impl"),
    ("/home/me/train.py", 43, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    ("/home/me/train.py", 44, "main", "optimizer.step()", True),
    ("/lib/site-packages/torch/optim/adam.py", 9, "step"),
    ("/home/me/train.py", 45, "main", "total += loss.item()", True),
    ("/home/me/train.py", 41, "main", "x, y = x.to(device), y.to(device)", True),
    ("/home/me/train.py", 47, "main", "torch.save(model.state_dict(), path)", True),
    ("/home/me/train.py", 46, "main", "history.append(float(loss))", True),
    ("/home/me/model.py", 12, "forward", "if mask.sum().item() > 0:", True),
    ("/opt/tuimon/agent/hooks.py", 9, "tuimon_fetch"),
    ("/lib/site-packages/torch/amp/grad_scaler.py", 350, "_maybe_opt_step"),
    ("/home/me/train.py", 39, "main", "x, y = make_batch()", True),
    ("/lib/site-packages/torch/nn/modules/conv.py", 548, "_conv_forward"),
)
#: Samples of each loop, as shares of its CPU time fall.
USUAL = (([FORWARD, MODULE], 30), ([BACKWARD, IN_BACKWARD], 35), ([STEP, IN_STEP], 15))
#: When the loops of ``session_of`` end, about.
END_S = 1020.0


def gpu(t, util=0.5, **figures):
    """NVML's counters of the one GPU."""
    facts = {"uuid": UUID, "name": "A GPU", "compute_capability": 9.0}
    memory = {"memory_used_bytes": 60 << 30, "memory_total_bytes": 80 << 30}
    return Gpu(t=t, pid=0, index=0, util_ratio=util, **(facts | memory | figures))


def beside_steps(records, util, *counted, cpu=0.99, autograd=0.0, cpu_ratio=None, samples=None, **figures):
    """A training's records, each window of steps followed by NVML's counters (if any), its threads, and its samples."""
    rows = [(PID, "python", cpu, "running", 0.0), (PID + 1, "pt_autograd_0", autograd, "running", 0.0)]
    for record in records:
        yield record
        if isinstance(record, Steps):
            if util is not None:
                yield gpu(record.t, util, **figures)
            yield threads(record.t, *rows, cpu_ratio=cpu_ratio or cpu + autograd)
            yield stacks(record.t, *counted, **({"samples": samples} if samples else {}))


def session_of(kind, *counted, util=None, cpu=None, autograd=0.0, more=(), seconds=20.0, **figures):
    """A simulated loop, its samples (stack, count), and what NVML and the thread counters show beside it."""
    session = Session()
    simulated = records(kind, seconds)
    end_s = max(record.t for record in simulated)
    session.add(LINES)
    for record in simulated:
        session.add(record)
        if util is not None and isinstance(record, Steps):
            session.add(gpu(record.t, util, **figures))
    if counted:
        session.add(stacks(end_s, *counted))
    if cpu is not None:
        rows = [(PID, "python", cpu, "running", 0.0), (PID + 1, "pt_autograd_0", autograd, "running", 0.0)]
        session.add(threads(end_s, *rows, cpu_ratio=cpu + autograd))
    return extend(session, more)


def findings(*args, **kwargs):
    """By rule, the most important first."""
    return by_rule(session_of(*args, **kwargs))


def gpu_time(t, phases, leads, steps=10, bounded=True):
    """A literal window: phases as ``(span, idle, maybe idle)`` in ms a step, leads as ``(median us, idle ratio)``."""
    rows = [GpuPhase(name, *(int(ms * steps * 1e6) for ms in parts)) for name, parts in phases.items()]
    ahead = [Lead(name, steps, us, us, us, round(steps * ratio)) for name, (us, ratio) in leads.items()]
    facts = {"window_s": 1.0, "device": 0, "lead_error_us": 5.0, "bounded": bounded}
    total_ns = sum(row.span_ns for row in rows)
    return GpuTime(t=t, pid=PID, steps=steps, total_ns=total_ns, phases=rows, leads=ahead, **facts)
