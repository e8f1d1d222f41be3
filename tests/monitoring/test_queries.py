"""The dashboard and the alert rules ask for what a node exports, and nothing is left out."""

import re

import pytest
import yaml

from helpers.monitoring_queries import ALERTS, COMPOSE, dashboard, names, panels, rules
from tandemlog_server.node.http.metric_families import FAMILIES
from tandemlog_server.node.http.metric_family import COMMON_LABELS, MetricKind

QUERIES = [*panels(), *((rule["alert"], rule["expr"]) for rule in rules())]
# not worth a curve: the same is seen elsewhere, or only in a search for a fault
NOT_SHOWN = {
    "replicated_chunks_total", "calls_started_total", "answer_bytes", "metric_topics_folded",
    "metric_groups_folded", "isr_size", "clock_jump_seconds", "unreadable_files",
    "coordinator_last_accepted_age_seconds", "coordinator_epoch",
}  # fmt: skip


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_query_names_families_and_labels_that_there_are(title: str, query: str) -> None:
    known = {"le", "job", "instance", *COMMON_LABELS}
    for name in names(query):
        assert name in FAMILIES, f"{title}: there is no tandemlog_{name}"
        known |= set(FAMILIES[name].labels)
        if FAMILIES[name].kind is MetricKind.COUNTER:
            assert re.search(rf"(rate|increase)\(tandemlog_{name}", query), f"{title}: a counter"
    used = re.findall(r"\b(\w+)\s*(?:=~|!~|!=|=)\s*\"", query)
    for part in re.findall(r"\b(?:by|on|group_left|without)\s*\(([^)]*)\)", query):
        used += [each.strip() for each in part.split(",") if each.strip()]
    assert set(used) <= known, f"{title}: {set(used) - known}"


def test_the_dashboard_shows_every_family() -> None:
    shown = {name for _, query in panels() for name in names(query)}
    assert set(FAMILIES) - shown - NOT_SHOWN == set()


def test_the_panels_lie_side_by_side() -> None:
    made = dashboard()
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_alert_says_what_to_do() -> None:
    found = list(rules())
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert len(rule["annotations"]["action"]) > 20, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]


def test_prometheus_and_grafana_find_each_other() -> None:
    folder = COMPOSE / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())[
        "datasources"
    ]
    chosen = next(
        each for each in dashboard()["templating"]["list"] if each["name"] == "datasource"
    )
    assert chosen["current"]["value"] == source["uid"]
    for name in ("prometheus.yml", "prometheus-secure.yml"):
        held = yaml.safe_load((ALERTS.parent / name).read_text())
        assert held["rule_files"] == [ALERTS.name]
        (job,) = held["scrape_configs"]
        assert job["job_name"] == "tandemlog"
        assert job["static_configs"][0]["targets"] == ["n0:7180", "n1:7180", "n2:7180"]
