"""Settings in force that slow the steps down, on literal sessions."""

import math
from typing import Any

import pytest

from tests.diagnosis.cpu import NO_GPU
from tests.session.records import by_rule, frames, one_process, stacks, steps, thread
from tuimon.diagnosis.finding import Finding
from tuimon.records import Gil, GilCount, Gpu, OptimizerFacts, SettingLine

TORCH = "/lib/site-packages/torch"
POLICY = frames(
    ("train.py", 11, "policy", "return Normal(mean, scale)", True),
    (f"{TORCH}/distributions/normal.py", 60, "__init__"),
    (f"{TORCH}/distributions/distribution.py", 70, "__init__"),
    (f"{TORCH}/distributions/constraints.py", 300, "check"),
    ("train.py", 12, "main", "loss = -policy(x).log_prob(action).mean()", True),
    (f"{TORCH}/distributions/normal.py", 90, "log_prob"),
    (f"{TORCH}/distributions/distribution.py", 280, "_validate_sample"),
    ("train.py", 13, "main", "loss.backward()", True),
    ("/opt/tuimon/agent/hooks.py", 7, "tuimon_backward"),
    (f"{TORCH}/nn/modules/module.py", 99, "_call_impl"),
    (f"{TORCH}/fx/traceback.py", 300, "format_stack"),  # 10
    ("/lib/python3.11/linecache.py", 72, "checkcache"),
    ("/lib/python3.11/traceback.py", 250, "format_stack"),  # 12: a program's own call
    (f"{TORCH}/_dynamo/convert_frame.py", 1100, "_compile"),  # 13
)
PHASES = {"data": 2, "forward": 45, "backward": 45, "optimizer": 5, "other": 3}


def found(*more: Any, phases: dict[str, int] = PHASES, gpu: bool = False, **facts: Any) -> dict[str, Finding]:
    """All findings of a run whose process reports these facts."""
    device = Gpu(t=1, pid=0, index=0, uuid="GPU-a", name="A", pids=[100]) if gpu else NO_GPU
    made = [(thread(t, 1.0), steps(t + 0.1, phases, first_index=10 * (t - 1))) for t in range(1, 13)]
    return by_rule(one_process(device, POLICY, made, more, **facts))


def test_bfloat16_on_a_cpu_without_instructions_for_it() -> None:
    found_on = {
        vectors: found(matmul_dtypes=["bfloat16", "float32"], parameter_dtypes=["float32"], vectors=vectors)
        for vectors in ("avx2", "avx512", "avx512_bf16", "amx", None)
    }
    gains = {vectors: each["slow_setting"].estimated_speedup for vectors, each in list(found_on.items())[:2]}
    assert gains["avx512"] == pytest.approx(1 / (1 - 0.9 * 0.50), rel=0.01)
    assert gains["avx2"] > 1.5 * gains["avx512"]
    assert found_on["avx2"]["slow_setting"].cause == "bfloat16"
    assert "no torch.autocast" in found_on["avx2"]["slow_setting"].action
    assert not any("slow_setting" in found_on[vectors] for vectors in ("avx512_bf16", "amx", None))


def test_float16_on_a_cpu_without_instructions_for_it() -> None:
    found_on = {
        vectors: found(matmul_dtypes=["float16"], parameter_dtypes=["float32"], vectors=vectors)
        for vectors in ("avx2", "avx512_bf16", "amx", None)
    }
    slow = [vectors for vectors, findings in found_on.items() if "slow_setting" in findings]
    assert slow == ["avx2", "avx512_bf16"]
    finding = found_on["avx512_bf16"]["slow_setting"]
    assert (finding.cause, finding.severity) == ("float16", "critical")
    assert "float16, which this CPU has no instructions for" in finding.headline


def test_lower_precision_is_advised_only_where_it_is_off_and_faster() -> None:
    def advice(**facts: Any) -> str:
        return found(**facts)["compute_bound_cpu"].fixes[-1].action

    assert "bfloat16" in advice(vectors="avx512_bf16", parameter_dtypes=["float32"], matmul_dtypes=["float32"])
    assert "bfloat16" not in advice(vectors="avx512_bf16", parameter_dtypes=["float32"], matmul_dtypes=["bfloat16"])
    assert "bfloat16" not in advice(vectors="avx2", parameter_dtypes=["float32"])
    assert "bfloat16" not in advice(parameter_dtypes=["float32"])


def test_parameters_in_float64() -> None:
    finding = found(parameter_dtypes=["float64"])["slow_setting"]
    assert (finding.cause, finding.severity) == ("float64", "critical")
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.95 * 0.5), rel=0.01)
    assert "slow_setting" not in found(parameter_dtypes=["float32", "float64"])
    assert "slow_setting" not in found(parameter_dtypes=["float64"], gpu=True)


@pytest.mark.parametrize(
    ("source", "optimizer", "is_told"),
    [
        ("scale = torch.linalg.norm(x)", "Adam", True),
        ("chol = torch.linalg.cholesky(kernel)", "Adam", False),
        ("loss = -(y @ torch.cholesky_solve(y, chol)).sum()", "Adam", True),
        ("y = model(x)", "LBFGS", False),
    ],
)
def test_float64_whose_digits_are_needed_is_left_alone(source: str, optimizer: str, is_told: bool) -> None:
    line = frames(("train.py", 20, "main", source, True), first=20)
    settings = {"parameter_dtypes": ["float64"], "optimizers": [OptimizerFacts(optimizer, "torch")]}
    assert ("slow_setting" in found(line, stacks(5, ([20], 30)), **settings)) == is_told


def test_what_takes_little_of_the_step_gains_too_little() -> None:
    waiting = {"data": 95, "forward": 2, "backward": 2, "optimizer": 1}
    assert "slow_setting" not in found(phases=waiting, parameter_dtypes=["float64"])


def held(count: int) -> Gil:
    return Gil(t=12, pid=100, samples=100, threads=[GilCount(100, count)])


def test_a_tracer_slows_what_runs_while_the_gil_is_held() -> None:
    finding = found(held(80), debug_settings=["tracer"])["slow_setting"]
    assert (finding.cause, finding.share_of_step) == ("tracer", 0.8)
    assert finding.best.gain.low is not None and finding.estimated_speedup is not None
    assert 1.2 < finding.best.gain.low < finding.estimated_speedup
    assert "slow_setting" not in found(held(4), debug_settings=["tracer"])
    assert "slow_setting" not in found(held(80))
    assert "slow_setting" not in found(debug_settings=["tracer"])


def test_tracemalloc_slows_it_too_by_more() -> None:
    finding = found(held(80), debug_settings=["tracemalloc"])["slow_setting"]
    assert (finding.cause, finding.share_of_step, finding.best.gain.high) == ("tracer", 0.8, math.inf)
    assert "tracemalloc.start()" in finding.action
    assert "slow_setting" not in found(debug_settings=["tracemalloc"])


FOLLOWS = ("tools.py", 8, "trace", "seen[frame.f_code] += 1", True)


@pytest.mark.parametrize(
    ("frame", "handed", "is_tracer"),
    [
        (FOLLOWS, "sys.settrace(trace)", True),
        (FOLLOWS, "threading.setprofile(self.trace)", True),
        (FOLLOWS, "sys.settrace(other)", False),
        (FOLLOWS, None, False),
        (("/lib/python3.11/bdb.py", 90, "trace_dispatch"), None, True),
        ((f"{TORCH}/utils/profile.py", 90, "run"), None, False),
    ],
)
def test_samples_show_a_tracer_of_python_where_nothing_reports_it(frame, handed, is_tracer) -> None:
    sets = () if handed is None else (SettingLine("tracer", 3, "main", handed),)
    main = ("train.py", 30, "main", "loss = model(x)", True, "", "", None, None, sets)
    traced = frames(main, frame, first=len(POLICY.frames))
    first = len(POLICY.frames)
    samples = stacks(12, ([first, 9, first + 1], 30), ([first, 9], 30), ([7, 8], 40))
    findings = found(traced, samples, held(60))
    assert ("slow_setting" in findings) == is_tracer
    if is_tracer:
        assert findings["slow_setting"].cause == "tracer"
        assert [place.function for place in findings["slow_setting"].where] == (["trace"] if handed else ["main"])


def test_checks_of_distributions_are_counted_in_samples() -> None:
    checks = (([4, 0, 1, 2], 10), ([4, 0, 1, 2, 3], 15), ([4, 5, 6], 15))
    finding = found(stacks(12, *checks, ([4, 5], 20), ([7, 8], 40)))["slow_setting"]
    assert (finding.cause, finding.share_of_step) == ("validation", 0.4)
    assert (finding.where[0].function, finding.where[0].line) == ("policy", 11)
    assert "set_default_validate_args(False)" in finding.action
    assert "slow_setting" not in found(stacks(12, ([4, 5], 60), ([7, 8], 40)))


def test_the_stacks_that_anomaly_detection_notes_are_counted_in_samples() -> None:
    samples = stacks(12, ([4, 9, 10], 10), ([4, 9, 10, 11], 20), ([4, 9], 30), ([7, 8], 40))
    on = found(samples)  # whether the process reports the setting or, attached to, nothing
    finding = on["slow_setting"]
    assert (finding.cause, finding.share_of_step) == ("anomaly", 0.3)
    assert "set_detect_anomaly" in finding.action and "compute_bound_cpu" not in on
    assert finding.estimated_speedup == pytest.approx(1 / (1 - 0.95 * 0.3), rel=0.01)
    assert finding.best.gain.high == math.inf  # no sample shows the search for NaN
    assert "slow_setting" not in found(stacks(12, ([4, 12], 30), ([4, 12, 11], 10), ([4, 9], 30), ([7, 8], 40)))


def test_a_compiler_that_notes_stacks_is_no_anomaly_detection() -> None:
    assert "slow_setting" not in found(stacks(12, ([4, 13, 10, 11], 30), ([4, 9], 30), ([7, 8], 40)))


def test_several_settings_are_one_finding_the_one_that_gains_most_first() -> None:
    finding = found(held(30), parameter_dtypes=["float64"], debug_settings=["tracer"])["slow_setting"]
    assert finding.cause == "float64"
    assert ["profiler" in fix.action for fix in finding.fixes] == [False, True]
