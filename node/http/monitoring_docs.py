"""docs/monitoring.md, generated from the table of families, so that it stays up to date.

usage: python -m tandemlog_server.node.http.monitoring_docs > docs/monitoring.md
"""

import sys
import textwrap

from .metric_families import SECTIONS
from .metric_family import COMMON_LABELS, Family, Section

_HEAD = """# Monitoring

Each node has one HTTP port (`http_listen`) with health checks, metrics and the state of the
cluster. [compose/prometheus](../compose/prometheus) has a configuration for Prometheus and alert
rules, [compose/grafana](../compose/grafana) a dashboard. A test runs each of their queries against
the metrics of a node.

## What to look at first

| question | where |
|---|---|
| Is everything well? | `tandemlog check`: exit code 0, 1 or 2, and a sentence |
| Who is master, who lags? | `tandemlog top`, live, or `list`; row *Cluster* of the dashboard |
| Are puts acknowledged? | the sum of `can_ack` is 1; the rate of `acks_total` by result |
| Are puts slow? | `ack_seconds`; of it `append_seconds`, `flush_seconds`, `confirm_seconds` |
| Do consumers keep up? | `consumer_lag_seconds`: how old is what they read |
| Will the disk be full? | `disk_free_bytes`; retention frees space below `store.retention` |
| Could a failover lose messages? | `alarms`, `under_min_isr`, `unclean_epoch` |

## Endpoints of HTTP

| path | answers |
|---|---|
| `/health` | 200 while the store can be written and read and no alarm is on |
| `/liveness` | 200 while a restart would not help |
| `/readiness?lag=10MB` | 200 where reads are served; on a slave, within that lag |
| `/master` | 200 on a master that could acknowledge a put now |
| `/slave?lag=10MB` | 200 on a slave within that lag |
| `/in-sync` | 200 on a member of the in-sync set |
| `/cluster` | what this node knows of all nodes and of elections, as JSON |
| `/history` | the terms of the cluster, as JSON |
| `/metrics` | the metrics below, as Prometheus' text |

Health checks answer 503 with a `reason` otherwise. No endpoint asks another node, and a scrape does
not hold up puts: its text is made in a thread, and scrapes that come at the same time share one.

## Log

A node logs on stderr, one event per line, and has no log file of its own: journald or the container
engine rotates what it writes. Where stderr is a file, rotate it with logrotate's `copytruncate`.
SIGHUP changes nothing, unless the node runs in a terminal that is closed.

`[log] level` is the lowest level. With `[log] format = "json"` each line is one JSON object:

| field | is |
|---|---|
| `time` | RFC 3339, UTC, with milliseconds |
| `level` | `debug`, `info`, `warning`, `error` |
| `node`, `cluster` | who logs |
| `logger` | the part of the program; `tandemlog.audit` has administrative calls |
| `message` | the event |
| `exception` | the traceback, where there is one |

`tandemlog coordinator --log-format json` does the same for the embedded coordinator.

## Traces

With `pip install 'tandemlog[otel]'` and an OpenTelemetry SDK set up by the program, producers and
consumers take part in its traces; see [client.md](client.md#traces). Nodes make no spans.

## Alerts

The rules are in [compose/prometheus/alerts.yml](../compose/prometheus/alerts.yml), with a sentence
of what to do in each. Change their thresholds to what you accept. The ones that must wake someone
have `severity: page`: no master, two masters, an alarm, a failed store, a full disk.

## Metrics

"""

_NOTES = """All names begin with `tandemlog_`; each family has the labels {common} beside its own.
Counters count from the start of the process. Latencies are histograms with bounds that double, from
1 us to 34 s: use `histogram_quantile` over `rate(…_bucket[5m])`. Beside these families there are
those of the process (`process_resident_memory_bytes`, `process_open_fds` and others) from the
Prometheus library.

This page is generated: change `node/http/metric_families.py` (text above: `monitoring_docs.py`) and
run `make docs`."""


def monitoring_markdown() -> str:
    """The whole text of docs/monitoring.md."""
    notes = _NOTES.format(common=" and ".join(f"`{label}`" for label in COMMON_LABELS))
    return "\n\n".join([_HEAD + notes, *map(_section, SECTIONS)]) + "\n"


def _section(section: Section) -> str:
    rows = ["| name | type | labels | unit | meaning |", "|---|---|---|---|---|"]
    parts = [f"### {section.title}"]
    if section.introduction:
        lines = textwrap.wrap(
            section.introduction, 100, break_long_words=False, break_on_hyphens=False
        )
        parts.append("\n".join(lines))
    parts.append("\n".join([*rows, *map(_row, section.families)]))
    return "\n\n".join(parts)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels) or "-"
    meaning = family.meaning.replace("|", "\\|")
    return (
        f"| `{family.name}` | {family.kind.value} | {labels} | {family.unit or '-'} | {meaning} |"
    )


if __name__ == "__main__":
    sys.stdout.write(monitoring_markdown())
