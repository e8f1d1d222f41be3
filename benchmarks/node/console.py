"""What a console costs an idle node: closed, enabled, and with the cluster page open. And how long
a page waits for its answers where there are 2,000 topics.

Three nodes of one cluster each, side by side and idle. The open page is a client that asks as the
page does: the cluster again and again by long polling, the rates every two seconds. Without a
console there is nothing to measure but the node itself, which the others are compared with.
"""

import gc
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tandemlog
from benchmarks.harness.figures import Figure
from benchmarks.harness.nodes import cluster, cpu_seconds_of, memory_mb
from tandemlog_server.cli.local.local_cluster import LocalCluster

ON = "\n[console]\nenabled = true\n"
SETTLE_S = 5.0
IDLE_S = 30.0
RATES_S = 2.0
PAGES = ("", "app.js", "style.css", "api.js", "dom.js", "cluster.js", "api/session")


MANY = 2_000
QUEUES = 5
ANSWERS = (
    "topics", "topics?sort=rate", "topics?like=9", "topic?name=many-7", "groups", "messages/topics",
    "messages?topic=many-7", "services/groups", "services/delayed", "services/transactions",
    "store", "cluster", "cluster/rates",
)  # fmt: skip


def run(folder: Path) -> list[Figure]:
    return [*_idle(folder), *_many(folder)]


def _many(folder: Path) -> list[Figure]:
    """The slowest and the largest answer, each asked once more after a first time."""
    with cluster(folder / "many", 1, _switched_on) as local:
        _wait_served(local)
        endpoint = local.nodes[0].endpoint
        with tandemlog.Admin(endpoint) as admin, tandemlog.Producer(endpoint) as producer:
            for number in range(MANY):
                admin.create_topic(f"many-{number}", queues=QUEUES)
                producer.send(tandemlog.Message(f"many-{number}", b"x"))
        slowest, largest = ("", 0.0), ("", 0)
        for path in ANSWERS:
            _ask(local, f"api/{path}")
            began = time.perf_counter()
            size = len(_ask(local, f"api/{path}"))
            slowest = max(slowest, (path, time.perf_counter() - began), key=lambda each: each[1])
            largest = max(largest, (path, size), key=lambda each: each[1])
    of = f"with {MANY:,} topics of {QUEUES} queues"
    return [
        Figure(f"slowest answer {of}: {slowest[0]}", slowest[1] * 1e3, "ms", 1_000, at_most=True),
        Figure(f"largest answer {of}: {largest[0]}", largest[1] / 1e3, "KB", 1_000, at_most=True),
    ]


def _idle(folder: Path) -> list[Figure]:
    with ExitStack() as stack:
        names = {"closed": _as_it_is, "enabled": _switched_on, "open": _switched_on}
        nodes = {
            name: stack.enter_context(cluster(folder / name, 1, change))
            for name, change in names.items()
        }
        for name in ("enabled", "open"):
            _wait_served(nodes[name])
        stack.enter_context(_page(nodes["open"]))
        time.sleep(SETTLE_S)
        before = {name: cpu_seconds_of(_pid(each)) for name, each in nodes.items()}
        began = time.monotonic()
        time.sleep(IDLE_S)
        took = time.monotonic() - began
        share = {
            name: (cpu_seconds_of(_pid(each)) - before[name]) / took * 100
            for name, each in nodes.items()
        }
        memory = {name: memory_mb(_pid(each)) for name, each in nodes.items()}
        first = _load_s(nodes["open"])
    closed_share, closed_mb = share["closed"], memory["closed"]
    rows = [
        ("console enabled, no page", share["enabled"] - closed_share, "% of a core", 1.0),
        ("console with the cluster page open", share["open"] - closed_share, "% of a core", 1.0),
        ("memory of an enabled console", memory["enabled"] - closed_mb, "MB", 5.0),
        ("memory with the cluster page open", memory["open"] - closed_mb, "MB", 5.0),
        ("all files of the first page, one after the other", first * 1000, "ms", 100.0),
    ]
    return [Figure(name, value, unit, goal, at_most=True) for name, value, unit, goal in rows]


def _as_it_is(settings: str) -> str:
    return settings


def _switched_on(settings: str) -> str:
    return settings + ON


def _pid(local: LocalCluster) -> int:
    process = local.nodes[0].process
    if process is None:
        raise RuntimeError("the node has no process")
    return process.pid


def _ask(local: LocalCluster, path: str) -> bytes:
    url = f"http://{local.nodes[0].http_endpoint}/console/{path}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def _wait_served(local: LocalCluster) -> None:
    """HTTP begins after the node serves puts."""
    deadline = time.monotonic() + 60
    while True:
        try:
            _ask(local, "api/session")
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _load_s(local: LocalCluster) -> float:
    """The shortest of ten loads, since the machine does other things too."""
    times = []
    gc.disable()
    for _ in range(10):
        began = time.perf_counter()
        for path in PAGES:
            _ask(local, path)
        times.append(time.perf_counter() - began)
    gc.enable()
    return min(times)


@contextmanager
def _page(local: LocalCluster) -> Iterator[None]:
    closed = threading.Event()

    def live() -> None:
        seen = ""
        while not closed.is_set():
            seen = json.loads(_ask(local, f"api/cluster?seen={seen}"))["seen"]

    def rates() -> None:
        while not closed.wait(RATES_S):
            _ask(local, "api/cluster/rates?span=minutes")

    threads = [threading.Thread(target=each, daemon=True) for each in (live, rates)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        closed.set()
        for thread in threads:
            thread.join()
