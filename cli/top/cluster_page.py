"""The page of the nodes: how the cluster is and what to do, who is in sync and why not, what each
node takes and gives, who has led.

The reasons of the verdict stand first, each with its way out, and nothing cuts them off: they
matter most when something is broken.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tandemlog.cluster.topology import NodeInfo

from ..cluster.elections_table import (
    coordinator_notes,
    history_columns,
    history_rows,
    history_texts,
    topology_lines,
    topology_rows,
)
from ..cluster.nodes_table import TITLES, node_rows, summary
from ..cluster.traffic import DISK_FREE, DISK_SIZE, readable
from ..cluster.verdict import Level, judge
from ..output.tables import NO_LIMIT, cell_text, fits, table_of
from .recent import ALL, POINTS, Recent

STYLES = {
    Level.OK: "green",
    Level.WARNING: "yellow",
    Level.CRITICAL: "bold red",
    Level.UNKNOWN: "bold red",
}
NODES = (
    (
        "node", "role", "endpoint", "state", "epoch", "in_sync", "lag_bytes", "lag_seconds",
        "disk %", "free GB", "version",
    ),
    (
        "node", "role", "state", "epoch", "in_sync", "lag_bytes", "lag_seconds", "disk %",
        "free GB",
    ),
    ("node", "role", "state", "in_sync", "lag_bytes", "disk %"),
)  # fmt: skip
"""The columns of the table of nodes, the widest first."""
RATES = ("node", "in/s", "MB in/s", "out/s", "MB out/s")
PLOTS = {"in": "messages_in_per_second", "out": "messages_out_per_second"}
"""What is drawn of each node, by the title of its column."""
TERMS = 5
"""How many epochs are shown, the newest first."""
BARS = "▁▂▃▄▅▆▇█"
LEAST_BARS = 8
"""A plot with fewer is left out."""
BETWEEN = 2
"""Characters between two columns of a table."""


def level(recent: Recent) -> Level:
    """How the cluster is."""
    return judge(recent.topology).level


def parts(recent: Recent, console: Console) -> list[RenderableType]:
    """The page from top to bottom, for the width of `console`."""
    topology, details = recent.topology, recent.details
    verdict = judge(topology)
    reasons = (recent.fault,) if recent.fault else verdict.reasons
    if details.coordination is not None:
        rows = topology_rows(details.coordination, topology)
        notes = [each for each in topology_lines(details.coordination, rows) if each not in reasons]
    else:
        rows = [row for row in node_rows(topology) if row["detail"]]
        notes = [f"{row['node']}: {row['detail']}" for row in rows]
        notes += [each for each in coordinator_notes(topology) if each not in reasons]
    return [
        *(_line(each, STYLES[verdict.level]) for each in reasons),
        *(_line(each, "yellow") for each in details.faults),
        Text(),
        _nodes(recent, console),
        *(_line(each, "dim") for each in (*notes, summary(topology))),
        Text(),
        _traffic(recent, console),
        *(_line(each, "yellow") for each in _unread(recent)),
        *_terms(recent, console),
    ]


def _line(text: str, style: str) -> Text:
    return Text(cell_text(text, NO_LIMIT), style=style)


def _nodes(recent: Recent, console: Console) -> Table:
    now = {each.node_id: each.now for each in recent.samples}
    nodes = {node.node_id: node for node in recent.topology.nodes}
    rows = [
        row | _disk(now.get(row["node"], {})) | {"role": _role(nodes[row["node"]])}
        for row in node_rows(recent.topology)
    ]
    tables = [table_of(rows, columns, TITLES) for columns in NODES]
    table = next((each for each in tables if fits(each, console)), tables[-1])
    for line, row in zip(table.rows, rows, strict=True):
        node = nodes[row["node"]]
        if not (node.reachable or node.is_broker):
            line.style = "red"
        elif node.is_master:
            line.style = "bold"
    return table


def _role(node: NodeInfo) -> str:
    """What it is now: a master that is gone is none."""
    return node.role if node.reachable or node.is_broker else ""


def _disk(now: Mapping[str, float]) -> dict[str, Any]:
    size, free = now.get(DISK_SIZE, 0), now.get(DISK_FREE, 0)
    if not size:
        return {}
    return {"disk %": round(100 * (1 - free / size)), "free GB": round(free / 1e9, 1)}


def _unread(recent: Recent) -> list[str]:
    return [
        f"{each.node_id}: its metrics cannot be read: {each.fault}"
        for each in recent.samples
        if each.fault
    ]


# ---- what nodes take and give


def _traffic(recent: Recent, console: Console) -> Table:
    names = [name for name in recent.points if name != ALL]
    if len(names) > 1:
        names.append(ALL)
    rows: list[dict[str, Any]] = [
        {"node": name} | ({} if (point := recent.newest(name)) is None else readable(point))
        for name in names
    ]
    table = table_of(rows, RATES)
    unbounded = console.options.update(max_width=NO_LIMIT)
    room = console.width - Measurement.get(console, unbounded, table).maximum
    width = min(POINTS, room // len(PLOTS) - BETWEEN)
    if width < LEAST_BARS or recent.count <= 2:  # one look after another is no plot yet
        return table
    titles = {}
    for title, rate in PLOTS.items():
        series = {name: _series(recent, name, rate) for name in names}
        most = max((each or 0 for values in series.values() for each in values), default=0)
        full = f"{title}, up to {most:,.0f}/s"
        titles[title] = full if len(full) <= width else title
        for row in rows:
            row[title] = sparkline(series[row["node"]], width, most, recent.count)
    return table_of(rows, (*RATES, *PLOTS), titles, POINTS)


def _series(recent: Recent, node_id: str, rate: str) -> list[float | None]:
    return [None if each is None else each[rate] for each in recent.points[node_id]]


def sparkline(values: Sequence[float | None], width: int, most: float, count: int) -> str:
    """The newest of `values` at the right, in `width` bars from 0 to `most`; None leaves a gap. A
    bar is the mean of so many values that all that are kept have room; `count`, how many there have
    been so far, keeps a bar's values together from one look to the next."""
    each = -(-POINTS // width)
    bars: dict[int, list[float]] = {}
    for number, value in enumerate(values, start=count - len(values)):
        bars.setdefault(number // each, []).extend(() if value is None else (value,))
    return "".join(_bar(bars[number], most) for number in sorted(bars)[-width:]).rjust(width)


def _bar(values: Sequence[float], most: float) -> str:
    if not values:
        return " "
    mean = sum(values) / len(values)
    # only nothing is as low as the lowest bar
    return BARS[math.ceil((len(BARS) - 1) * mean / most)] if mean > 0 else BARS[0]


# ---- who has led


def _terms(recent: Recent, console: Console) -> list[RenderableType]:
    history = recent.details.history
    if history is None or not history.terms:
        return []
    rows = [history_texts(row) for row in history_rows(history, recent.now_ms)]
    newest = rows[-1 : -1 - TERMS : -1]
    columns = list(history_columns(history))
    shorter = [name for name in columns if name != "began"]
    tables = [table_of(newest, names) for names in (columns, shorter)]
    return [Text(), next((each for each in tables if fits(each, console)), tables[-1])]
