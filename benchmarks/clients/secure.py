"""What TLS costs, and what tokens and permissions cost beside it: the same puts and pulls.

    plain      no TLS, every caller may do everything
    TLS        certificates of the nodes; the client shows none
    secured    TLS and an identity with patterns for topics, found by its token at each call

Each cluster is one node. They are measured in turns, so that the ratios are of one run, and each
turn begins with another cluster: after a pause, or after writes to another cluster, one is slower.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness import pulls, puts
from benchmarks.harness.figures import Figure, bring_in_memory
from benchmarks.harness.nodes import cluster
from benchmarks.harness.workload import topics
from tandemlog import Admin, Security
from tandemlog.errors import AuthenticationError
from tandemlog.memory import keep_freed_memory
from tandemlog_server.cli.local.local_cluster import LocalCluster
from tandemlog_server.node.access.access_editing import Grant, edited
from tandemlog_server.node.access.new_tokens import hash_of, new_token

RUNS = 6

TLS_KEEPS = 0.75
RIGHTS_KEEP = 0.97


def without_access(settings: str) -> str:
    """TLS alone: no access file."""
    lines = settings.replace('"required"', '"none"').splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("access_file"))


def without_certificates(settings: str) -> str:
    """The client is known by its token alone."""
    return settings.replace('"required"', '"none"')


def caller(local: LocalCluster) -> Security:
    """An identity with just the rights that it needs."""
    if local.security is None:
        return Security()
    token = new_token()
    mine = (*topics(puts.TOPICS), "nothing-of-this-*")
    with edited(local.security.access_file) as access:
        access.add_token("bench", hash_of(token), Grant(read=mine, write=mine))
    return Security(local.security.client.ca_file, token=token)


def send_many(security: Security, local: LocalCluster, folder: Path) -> float:
    bring_in_memory(folder, 1 << 28)
    return puts.send_many_rate(local.endpoints.split(","), security=security)


def send(security: Security, local: LocalCluster, folder: Path) -> float:
    bring_in_memory(folder, 1 << 28)
    return puts.send_rate(local.endpoints.split(","), security=security)


def pulled(security: Security, local: LocalCluster, _: Path) -> float:
    return pulls.rate(local.endpoints, security) / 1e6


def medians(measures: Sequence[Callable[[], float]]) -> list[float]:
    """Of RUNS turns, each in another order."""
    values: list[list[float]] = [[] for _ in measures]
    for turn in range(RUNS):
        for place in range(len(measures)):
            which = (turn + place) % len(measures)
            values[which].append(measures[which]())
    return [statistics.median(each) for each in values]


def run(folder: Path) -> list[Figure]:
    keep_freed_memory()  # as docs/client.md tells a program that reads fast
    with (
        cluster(folder / "plain", puts.TOPICS) as plain,
        cluster(folder / "tls", puts.TOPICS, without_access, secure=True) as tls,
        cluster(folder / "secured", puts.TOPICS, without_certificates, secure=True) as secured,
    ):
        clusters = (plain, tls, secured)
        callers = (Security(), Security(tls.client.ca_file), caller(secured))
        wait_for_access(secured, callers[2])
        figures = []
        for what, unit, measure in (
            ("send_many", "messages/s", send_many),
            ("send", "messages/s", send),
        ):
            measures = [
                partial(measure, who, one, folder)
                for who, one in zip(callers, clusters, strict=True)
            ]
            figures += _figures(what, unit, medians(measures))
    with (
        cluster(folder / "plain2", 1) as plain,
        cluster(folder / "tls2", 1, without_access, secure=True) as tls,
        cluster(folder / "secured2", 1, without_certificates, secure=True) as secured,
    ):
        clusters = (plain, tls, secured)
        callers = (Security(), Security(tls.client.ca_file), caller(secured))
        wait_for_access(secured, callers[2])
        for one, who in zip(clusters, callers, strict=True):
            pulls.fill(one.endpoints, who)
        measures = [
            partial(pulled, who, one, folder) for who, one in zip(callers, clusters, strict=True)
        ]
        figures += _figures("pull", "MB/s", medians(measures))
    return figures


def _figures(what: str, unit: str, rates: list[float]) -> list[Figure]:
    plain, tls, secured = rates
    return [
        Figure(f"{what}, TLS of plain", tls, unit, goal=TLS_KEEPS, reference=plain),
        Figure(f"{what}, tokens and rights of TLS", secured, unit, goal=RIGHTS_KEEP, reference=tls),
    ]


def wait_for_access(local: LocalCluster, who: Security) -> None:
    """Wait until the nodes have read the access file again."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with Admin(local.endpoints.split(","), security=who) as admin:
                admin.topics()
            return
        except AuthenticationError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
