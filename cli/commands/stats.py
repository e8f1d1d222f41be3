"""`tandemlog stats`: what a cluster takes and gives now, from the counters of its nodes.

    /metrics of each node ──▶ Sample ──a second later──▶ Sample ──▶ messages and bytes per second

A put counts on the node that stored it as master, a read on the node that it was read from, so the
sum over the nodes is that of the cluster. A node that has restarted counts from 0 again: its span
then begins with the restart.
"""

import asyncio
import itertools
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import aiohttp
import typer
from prometheus_client.parser import text_string_to_metric_families

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import NodeInfo
from tandemlog.errors import NodeUnavailableError
from tandemlog.transport.security import Security
from tandemlog.transport.security_files import SecurityFiles
from tandemlog_server.node.http.metric_family import PREFIX

from ..output.tables import Format, write_lines, write_table
from ..shared import connecting
from ..shared.command import new_app
from ..shared.completion import complete_topic
from ..shared.online import ClusterOptions

TRAFFIC = {
    "messages_in": "messages_in_total",
    "bytes_in": "bytes_in_total",
    "messages_out": "messages_out_total",
    "bytes_out": "bytes_out_total",
}
NOW = ("puts_waiting", "long_polls")
"""What a node has at the moment."""
NODE_COLUMNS = (
    "node",
    "role",
    "in/s",
    "MB in/s",
    "out/s",
    "MB out/s",
    "puts_waiting",
    "long_polls",
)
TOPIC_COLUMNS = ("topic", "in/s", "MB in/s", "out/s", "MB out/s", "messages_in_total")

app = new_app()


@dataclass(frozen=True, slots=True)
class Sample:
    """One node's counters at one moment: by topic the four numbers of TRAFFIC, in their order.
    `fault`: why they could not be read."""

    node_id: str
    at_s: float
    topics: Mapping[str, tuple[float, ...]]
    now: Mapping[str, float]
    fault: str = ""


@app.command("stats")
def stats_command(
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="Only this topic; may be repeated.", autocompletion=complete_topic
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            min=0.1,
            max=3_600,
            help="Time between the two looks at the counters.",
        ),
    ] = 1.0,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again after each interval, until Ctrl-C.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show messages and bytes per second, in and out: of each node, and of each topic.

    The counters are those of /metrics (docs/monitoring.md), so the nodes need an HTTP port. Bytes
    are those of the log: bodies, properties and headers. With --format jsonl there is one object
    for each topic of each node, with the totals since the node started.
    """
    security = connecting.security()

    async def work(admin: AsyncAdmin) -> None:
        before: Sequence[Sample] = ()
        for turn in itertools.count():
            nodes = (await admin.cluster()).nodes
            reachable = [node for node in nodes if node.reachable]
            after = await read_samples(reachable, security, cluster.timeout)
            if all(each.fault for each in after):
                faults = "; ".join(f"{each.node_id}: {each.fault}" for each in after)
                raise NodeUnavailableError(f"no node's metrics can be read: {faults or 'no node'}")
            if turn:
                rows = [row for row in rates(before, after) if not topics or row["topic"] in topics]
                _show(rows, after, {node.node_id: node.role for node in nodes}, cluster.form)
                if not watch:
                    return
            before = after
            await asyncio.sleep(interval)

    cluster.ask(work)


def _show(
    rows: list[dict[str, Any]], samples: Sequence[Sample], roles: dict[str, str], form: Format
) -> None:
    if form is Format.JSONL:
        write_lines(rows)
        return
    by_node = {row["node"]: row for row in summed(rows, "node")}
    nodes = [
        {"node": each.node_id, "role": roles.get(each.node_id), **each.now}
        | _short(by_node.get(each.node_id, {}))
        for each in samples
        if not each.fault
    ]
    write_table(nodes, NODE_COLUMNS)
    typer.echo()
    write_table([row | _short(row) for row in summed(rows, "topic")], TOPIC_COLUMNS)
    for each in samples:
        if each.fault:
            typer.echo(f"{each.node_id}: its metrics cannot be read: {each.fault}", err=True)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """The rates for people: bytes in MB."""
    return {
        "in/s": round(row.get("messages_in_per_second", 0), 1),
        "MB in/s": round(row.get("bytes_in_per_second", 0) / 1e6, 3),
        "out/s": round(row.get("messages_out_per_second", 0), 1),
        "MB out/s": round(row.get("bytes_out_per_second", 0) / 1e6, 3),
    }


# ---- counters


def parsed(text: str) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
    """By topic the counters of TRAFFIC, and the gauges of NOW, of the text of /metrics."""
    topics: dict[str, list[float]] = {}
    now = {}
    columns = {PREFIX + name: index for index, name in enumerate(TRAFFIC.values())}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in columns:
                row = topics.setdefault(sample.labels["topic"], [0.0] * len(TRAFFIC))
                row[columns[sample.name]] += sample.value
            elif sample.name.removeprefix(PREFIX) in NOW:
                now[sample.name.removeprefix(PREFIX)] = sample.value
    return {topic: tuple(row) for topic, row in topics.items()}, now


async def read_samples(
    nodes: Iterable[NodeInfo], security: Security, timeout_s: float
) -> list[Sample]:
    """One of each node, read at the same time."""
    limit = aiohttp.ClientTimeout(total=timeout_s)
    tls = _tls(security)
    metadata = SecurityFiles(security).current().metadata
    headers = {name.title(): value for name, value in metadata}
    async with aiohttp.ClientSession(timeout=limit, headers=headers) as session:

        async def one(node: NodeInfo) -> Sample:
            if not node.http_endpoint:
                return _missing(node, "it has no HTTP port (http_listen)")
            scheme = "http" if tls is None else "https"
            url = f"{scheme}://{node.http_endpoint}/metrics"
            name = security.server_name or None
            try:
                if fault := security.fault_with(node.http_endpoint):
                    return _missing(node, fault)
                async with session.get(url, ssl=tls or True, server_hostname=name) as answer:
                    if answer.status != 200:
                        return _missing(node, f"{url} responds with status {answer.status}")
                    return Sample(node.node_id, time.monotonic(), *parsed(await answer.text()))
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                return _missing(node, f"{url}: {error or 'no answer in time'}")

        return list(await asyncio.gather(*map(one, nodes)))


def rates(before: Sequence[Sample], after: Sequence[Sample]) -> list[dict[str, Any]]:
    """A row for each topic of each node that was read twice: per second, and since its start."""
    first = {each.node_id: each for each in before if not each.fault}
    rows = []
    for sample in after:
        earlier = first.get(sample.node_id)
        if earlier is None or sample.fault:
            continue
        seconds = max(sample.at_s - earlier.at_s, 1e-9)
        for topic, totals in sorted(sample.topics.items()):
            old = earlier.topics.get(topic, (0.0,) * len(totals))
            restarted = any(now < was for now, was in zip(totals, old, strict=True))
            moved = totals if restarted else [a - b for a, b in zip(totals, old, strict=True)]
            rows.append(_row(sample.node_id, topic, moved, totals, seconds))
    return rows


def summed(rows: Iterable[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    """The rows with equal `by` (node or topic) added up."""
    totals: dict[str, dict[str, Any]] = {}
    for row in rows:
        total = totals.setdefault(row[by], {by: row[by]})
        for name, value in row.items():
            if name not in ("node", "topic"):
                total[name] = round(total.get(name, 0) + value, 3)
    return list(totals.values())


def _row(
    node_id: str, topic: str, moved: Iterable[float], totals: Iterable[float], seconds: float
) -> dict[str, Any]:
    row: dict[str, Any] = {"node": node_id, "topic": topic}
    for name, value in zip(TRAFFIC, moved, strict=True):
        row[f"{name}_per_second"] = round(value / seconds, 3)
    for name, value in zip(TRAFFIC, totals, strict=True):
        row[f"{name}_total"] = int(value)
    return row


def _missing(node: NodeInfo, fault: str) -> Sample:
    return Sample(node.node_id, time.monotonic(), {}, {}, fault)


def _tls(security: Security) -> ssl.SSLContext | None:
    if not security.tls:
        return None
    context = ssl.create_default_context(cafile=security.ca_file or None)
    if security.cert_file:
        context.load_cert_chain(security.cert_file, security.key_file)
    return context
