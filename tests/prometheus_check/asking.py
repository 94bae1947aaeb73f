"""What a real Prometheus answers to the dashboard's expressions and makes of the rules in docs/metrics.md."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

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
