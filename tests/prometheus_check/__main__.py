"""``python -m tests.prometheus_check [--bin DIR]``: what a real Prometheus and promtool make of our metrics.

Two ranks train under ``tuimon run --prometheus``, ``tuimon view`` serves their folder of logs, and what needs a GPU is
of a session that is made up. Prometheus scrapes all three: each expression of the dashboard must return data.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from prometheus_client import start_http_server

from tests.views.metrics.figures import FINDINGS, whole_session
from tests.waiting import until
from tuimon.views.prometheus import RankLabels, take

#: Expressions are asked for so long until all have data (s).
LIMIT_S = 120.0
TRAINING = Path(__file__).with_name("training.py")


def main() -> int:
    """Print a row an expression; 1 when one has no data, or promtool has something to say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", help="folder of prometheus and promtool (default: PATH)")
    args = parser.parse_args()
    if args.bin:
        os.environ["PATH"] = f"{args.bin}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="tuimon-prometheus-") as folder, ExitStack() as stack:
        return _check(Path(folder), stack)


def _check(folder: Path, stack: ExitStack) -> int:
    (folder / "rules.yml").write_text(rules())
    ours, joined, made_up, prometheus = _free_ports(4)
    tuimon = [sys.executable, "-m", "tuimon"]
    run = [*tuimon, "run", "--headless", "--no-gpu", "--log", f"{folder}/logs/", "--run", "check"]
    run += ["--prometheus", str(ours), "--", sys.executable, "-m", "torch.distributed.run", "--standalone"]
    run += ["--nproc-per-node=2", str(TRAINING)]
    stack.enter_context(_running(run, folder / "run.log"))
    whole = SimpleNamespace(collect=lambda: take(whole_session(), FINDINGS, RankLabels()))
    start_http_server(made_up, "127.0.0.1", whole)  # type: ignore[arg-type]  (a registry is asked for nothing else)
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in (ours, joined, made_up))
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 2s, evaluation_interval: 2s}\n"
        f"rule_files: [{folder}/rules.yml]\n"
        f"scrape_configs: [{{job_name: tuimon, static_configs: [{{targets: [{targets}]}}]}}]\n"
    )
    serve = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    stack.enter_context(_running([*serve, f"--web.listen-address=127.0.0.1:{prometheus}"], folder / "prometheus.log"))
    until(lambda: any((folder / "logs").glob("*.jsonl*")), "a log", LIMIT_S)
    view = [*tuimon, "view", "--headless", "--prometheus", str(joined), f"{folder}/logs"]
    stack.enter_context(_running(view, folder / "view.log"))
    names = {f"127.0.0.1:{ours}": "run", f"127.0.0.1:{joined}": "view", f"127.0.0.1:{made_up}": "made up", "all": "all"}
    wrong = _expressions(prometheus, names)
    wrong += _promtool(_scraped(ours), "tuimon run") + _promtool(_scraped(joined), "tuimon view DIR")
    found = [rule for group in (ask(prometheus, "rules") or {"groups": []})["groups"] for rule in group["rules"]]
    print(f"rules of docs/metrics.md: {', '.join(rule['name'] + ' ' + rule['health'] for rule in found) or 'none'}")
    wrong += not found or any(rule["health"] != "ok" for rule in found)
    print(f"{wrong} wrong" if wrong else "all as they must be")
    return 1 if wrong else 0


DOCS = Path(__file__).resolve().parents[2] / "docs"


class Panel(NamedTuple):
    """An expression of the dashboard, all nodes and ranks chosen."""

    title: str
    expression: str


def panels() -> list[Panel]:
    """All expressions of the dashboard as Grafana sends them."""
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", ())]
    fill = {"$__rate_interval": "20s", "$instance": ".*", "$rank": ".*"}
    return [Panel(title, re.sub("|".join(map(re.escape, fill)), lambda m: fill[m[0]], expr)) for title, expr in found]


def rules() -> str:
    """The example of alerts in docs/metrics.md."""
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "metrics.md").read_text(), re.DOTALL)
    return next(block for block in blocks if block.startswith("groups:"))


def ask(port: int, path: str, **parameters: str) -> Any:  # Any: JSON
    """The data of an answer of Prometheus's API; None while there is none."""
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        return {"result": [], "error": error.read().decode(errors="replace")[:200]}
    except OSError:
        return None


def series(port: int, expression: str) -> dict[str, int]:
    """How many series an expression has now, by the instance they are of."""
    found: dict[str, int] = {}
    for each in (ask(port, "query", query=expression) or {"result": []})["result"]:
        name = each["metric"].get("instance", "all")
        found[name] = found.get(name, 0) + 1
    return found


def _expressions(prometheus: int, names: dict[str, str]) -> int:
    """Ask until all have data, and print how many series each has, by where they come from."""
    until_s, rows = time.monotonic() + LIMIT_S, {}
    while time.monotonic() < until_s:
        rows = {panel: series(prometheus, panel.expression) for panel in panels()}
        # of each as many expressions have data as there are of a training without a GPU, but for a few
        scraped = {name: sum(name in found for found in rows.values()) for name in names if name != "all"}
        if all(rows.values()) and all(number >= len(rows) // 2 for number in scraped.values()):
            break
        time.sleep(2.0)
    for panel, found in rows.items():
        counted = ", ".join(f"{names[instance]} {count}" for instance, count in sorted(found.items()))
        print(f"{panel.title:<36}{counted or 'NO DATA: ' + panel.expression}", flush=True)
    return sum(not found for found in rows.values())


def _promtool(text: bytes, what: str) -> int:
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    said = (done.stdout + done.stderr).decode().strip()
    print(f"promtool check metrics < {what}: {said or 'nothing to say'} (exit code {done.returncode})")
    return done.returncode != 0 or bool(said)


def _scraped(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return bytes(answer.read())


def _free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


@contextmanager
def _running(command: list[str], output: Path) -> Iterator[None]:
    """Run a command in a session of its own; in the end all of that is ended."""
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
