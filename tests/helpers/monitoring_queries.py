"""Every PromQL query in compose/: of the dashboard and of the alert rules."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).resolve().parents[2] / "compose"
DASHBOARD = COMPOSE / "grafana" / "dashboards" / "tandemlog.json"
ALERTS = COMPOSE / "prometheus" / "alerts.yml"

_NAME = re.compile(r"\btandemlog_\w+")


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def panels() -> Iterator[tuple[str, str]]:
    """(title, query) of each target of each panel, with Grafana's variables filled in."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m").replace("$cluster", ".+")
            yield panel["title"], query


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        yield from group["rules"]


def names(query: str) -> list[str]:
    """The families that `query` reads, without prefix and without the parts of a histogram."""
    found = _NAME.findall(query)
    return [re.sub(r"_(bucket|sum|count)$", "", each.removeprefix("tandemlog_")) for each in found]
