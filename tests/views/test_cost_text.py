"""The cost of a training: of 1,000 samples or steps, of a day, and what the fix saves."""

import pytest
from msgspec.structs import replace

from tests.recorded_logs import LOGS
from tests.session.records import header, process, session_of, steps
from tuimon.cli.main import run_command_line
from tuimon.diagnosis.finding import Finding, Fix
from tuimon.records import Exit, Gpu, Price
from tuimon.views.cost_text import cost_json, cost_text
from tuimon.views.headless import summary_lines
from tuimon.views.report.summary import report_of
from tuimon.views.report.text import text_report

WHOLE_S = 40
EUR = Price(3.6, "EUR")
SAVES = Finding(
    rule="input_bound", severity="critical", headline="it waits", fixes=(Fix("use workers", 2.0, 1.6, 2.0),)
)


def run(price=EUR, *, samples=None, gpus=1, ranks=1, watts=500.0, ended=True):
    """Ten steps a second on so many GPUs, each rank on its own share of them."""
    own = gpus // ranks
    uuids = [[f"GPU-{index}" for index in range(own * number, own * (number + 1))] for number in range(ranks)]
    session = session_of(replace(header(), price=price))
    facts = [{"rank": number, "world_size": ranks} if ranks > 1 else {} for number in range(ranks)]
    for number in range(ranks):
        session.add(process(100 + number, gpu_uuids=uuids[number], **facts[number]))
    for t in range(1, WHOLE_S + 1):
        for number in range(ranks):
            more = {"samples": 10 * samples} if samples else {}
            session.add(steps(t, {"forward": 40, "backward": 60}, pid=100 + number, first_index=10 * (t - 1), **more))
        for index in range(gpus):
            energy = None if watts is None else watts * t
            session.add(Gpu(t=float(t), pid=0, index=index, uuid=f"GPU-{index}", name="X", energy_j=energy))
    if ended:
        session.add(Exit(t=WHOLE_S + 0.1, pid=100, exit_code=0))
    return session


def test_money_and_energy_of_a_thousand_samples():
    found = cost_json(run(samples=8), [])
    # 80 samples a second on a GPU that costs 0.001 EUR a second, and takes 500 W
    assert (found["of"], found["gpus"]) == ("samples", 1)
    assert found["money_per_1000"] == pytest.approx(0.0125, rel=0.01)
    assert found["joules_per_1000"] == pytest.approx(500 / 80 * 1000, rel=0.02)
    assert found["text"].endswith(", 86.4 EUR a day on 1 GPU")
    assert found["text"].startswith("0.0125 EUR and 6.")
    assert " kJ per 1,000 samples" in found["text"]


def test_the_fix_of_the_verdict_saves_money():
    found = cost_json(run(samples=8), [SAVES])
    assert found["saved_per_day"] == [pytest.approx(86.4 * (1 - 1 / 1.6)), pytest.approx(86.4 / 2)]
    assert found["text"].endswith("; the fix would save 32.4 to 43.2 EUR of that")


@pytest.mark.parametrize(
    "finding",
    [
        replace(SAVES, fixes=(Fix("who knows"),)),
        replace(SAVES, rule="compute_bound", severity="benign", fixes=(Fix("change nothing"),)),
        replace(SAVES, severity="info"),  # too little to be the verdict
    ],
)
def test_without_a_gain_nothing_is_said_of_savings(finding):
    assert "save" not in cost_text(run(), [finding])


def test_gpus_that_do_not_count_energy_have_none():
    found = cost_json(run(samples=8, watts=None), [])
    assert found["joules_per_1000"] is None
    assert "J" not in found["text"]


def test_without_a_price_or_a_gpu_nothing_is_shown():
    assert cost_json(run(None), []) == {}
    on_cpu = session_of(replace(header(), price=EUR), process(), steps(1, {"forward": 100}))
    assert (cost_text(on_cpu, []), cost_json(on_cpu, [])) == ("", {})


def test_report_and_last_lines_have_it_once():
    session = run(samples=8)
    text = cost_text(session, [SAVES])
    page = " ".join(text_report(report_of(session, [SAVES], "run.jsonl")).split())
    assert page.count(f"Cost: {text}") == 1
    assert summary_lines(session, [SAVES]).count(f"cost: {text}") == 1
    assert "Cost:" not in text_report(report_of(run(None), [SAVES], "run.jsonl"))


def test_the_readers_price_counts_before_that_of_the_log():
    session = run()
    session.price = Price(7.2, "USD")
    session.add(replace(header(), price=EUR))
    assert cost_json(session, [])["currency"] == "USD"


def test_the_report_of_a_log_takes_the_price_on_its_command_line(capsys):
    log = str(next(path for path in LOGS if path.name.startswith("h100_masked_loss")))
    assert run_command_line(["report", log]) == 0
    assert "Cost:" not in capsys.readouterr().out
    assert run_command_line(["report", log, "--price", "2.5 EUR"]) == 0
    assert "60.0 EUR a day on 1 GPU" in " ".join(capsys.readouterr().out.split())
