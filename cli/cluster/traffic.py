"""What a cluster takes and gives, from the counters of its nodes.

    /metrics of each node ──▶ Sample ──a second later──▶ Sample ──▶ messages and bytes per second

A put counts on the node that stored it as master, a read on the node that it was read from, so the
sum over the nodes is that of the cluster. A node that has restarted counts from 0 again: its span
then begins with the restart.
"""

import asyncio
import io
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tandemlog.cluster.topology import NodeInfo
from tandemlog.transport.security import Security
from tandemlog.transport.security_files import SecurityFiles
from tandemlog_server.node.http.metric_family import PREFIX

TRAFFIC = {
    "messages_in": "messages_in_total",
    "bytes_in": "bytes_in_total",
    "messages_out": "messages_out_total",
    "bytes_out": "bytes_out_total",
}
DISK_SIZE, DISK_FREE = "disk_size_bytes", "disk_free_bytes"
NOW = ("puts_waiting", "long_polls", DISK_SIZE, DISK_FREE)
"""What a node has at the moment."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One node's counters at one moment: by topic the four numbers of TRAFFIC, in their order.
    `fault`: why they could not be read."""

    node_id: str
    at_s: float
    topics: Mapping[str, tuple[float, ...]]
    now: Mapping[str, float]
    fault: str = ""


def parsed(text: str) -> tuple[dict[str, tuple[float, ...]], dict[str, float]]:
    """By topic the counters of TRAFFIC, and the gauges of NOW, of the text of /metrics."""
    topics: dict[str, list[float]] = {}
    now = {}
    columns = {PREFIX + name: index for index, name in enumerate(TRAFFIC.values())}
    gauges = {PREFIX + name: name for name in NOW}
    # with thousands of topics and groups most lines are others
    wanted = (*columns, *gauges)
    for line in io.StringIO(text):
        if not line.startswith(wanted):
            continue
        name, topic, value = _number(line)
        if name in columns:
            row = topics.setdefault(topic, [0.0] * len(TRAFFIC))
            row[columns[name]] += value
        elif name in gauges:
            now[gauges[name]] = value
    return {topic: tuple(row) for topic, row in topics.items()}, now


@lru_cache(maxsize=16_384)
def _number(line: str) -> tuple[str, str, float]:
    """Name, topic and value of one line. Most topics are idle, so most lines are those of the look
    before; the cache has room for all of a node with very many topics, and some nodes."""
    (family,) = text_string_to_metric_families(line)
    (sample,) = family.samples
    return sample.name, sample.labels.get("topic", ""), sample.value


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
                    text, at_s = await answer.text(), time.monotonic()
                return Sample(node.node_id, at_s, *await asyncio.to_thread(parsed, text))
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
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


def readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The rates of a row for people: bytes in MB."""
    return {
        "in/s": round(row.get("messages_in_per_second", 0), 1),
        "MB in/s": round(row.get("bytes_in_per_second", 0) / 1e6, 3),
        "out/s": round(row.get("messages_out_per_second", 0), 1),
        "MB out/s": round(row.get("bytes_out_per_second", 0) / 1e6, 3),
    }


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
