"""Draws the picture of the README from a real run: docs/failover.svg.

    three nodes, producers that do not rest; kill -9 of the master at KILL_S, its restart at BACK_S
    ──▶ each acknowledgement and its moment        the upper plot: acknowledged in each 100 ms
    ──▶ what a node's console shows, ten times a second: the lower bands: who leads, who is in sync

usage: draw_failover.py [FILE]
"""

import argparse
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, tostring

import tandemlog
from tandemlog import Message
from tandemlog.errors import TandemlogError
from tandemlog_server.cli.local.local_cluster import LocalCluster, Wishes, plan_cluster
from tandemlog_server.cli.report.markup import element

KILL_S, BACK_S, END_S = 4.0, 7.0, 12.0
STEP_S = 0.1
PRODUCERS = 2
TOPIC = "orders"
NODES = ("n0", "n1", "n2")
PORT = 28_900
WIDTH, LEFT, TOP, HEIGHT, BAND = 860, 70, 44, 150, 18
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2024 } .quiet { fill: #565d66 }
.bar { fill: #1f5f9f } .axis { stroke: #8a929b } .kill { stroke: #b3261e; stroke-dasharray: 4 3 }
.master { fill: #1f5f9f } .sync { fill: #8fb7de } .behind { fill: #e0a050 } .gone { fill: #e4e6e9 }
@media (prefers-color-scheme: dark) {
  text { fill: #e8eaed } .quiet { fill: #a6aeb8 } .bar, .master { fill: #7db8f0 }
  .sync { fill: #3f6488 } .behind { fill: #b07830 } .gone { fill: #33393f }
  .kill { stroke: #ff9c94 }
}
"""


@dataclass
class Seen:
    """Seconds since the run began."""

    acknowledged: list[float] = field(default_factory=list)
    failed: int = 0
    nodes: list[tuple[float, dict[str, str]]] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=Path("docs/failover.svg"))
    file = parser.parse_args().file
    with tempfile.TemporaryDirectory(prefix="tandemlog-picture-") as folder:
        seen, killed = run(Path(folder))
    picture = drawn(seen, killed)
    file.write_text(tostring(picture, encoding="unicode") + "\n", encoding="utf-8")
    print(f"{file}: {len(seen.acknowledged)} acknowledged, {seen.failed} failed")


def run(folder: Path) -> tuple[Seen, str]:
    """What was seen, and the node that was killed."""
    plan = plan_cluster(folder, Wishes(slaves=2, min_in_sync=2))
    cluster = LocalCluster(folder, plan, PORT, console=True)
    cluster.write()
    cluster.start()
    try:
        master = wait_ready(cluster)
        seen, began = Seen(), time.monotonic()
        with looked_at(cluster, seen, began), loaded(cluster, seen, began):
            wait_until(began + KILL_S)
            node = next(each for each in cluster.nodes if each.node_id == master)
            assert node.process is not None
            node.process.kill()
            wait_until(began + BACK_S)
            cluster.start_node(node)
            wait_until(began + END_S)
        return seen, master
    finally:
        cluster.stop()


def wait_ready(cluster: LocalCluster) -> str:
    """Until all are in sync; the master's id."""
    with tandemlog.Admin(cluster.endpoints.split(",")) as admin:
        while True:
            try:
                topology = admin.cluster()
                if topology.master and all(each.in_sync for each in topology.nodes):
                    admin.create_topic(TOPIC, queues=4)
                    return topology.master.node_id
            except TandemlogError:
                pass
            time.sleep(0.2)


def wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@contextmanager
def loaded(cluster: LocalCluster, seen: Seen, began: float) -> Iterator[None]:
    """Producers send one message after the other."""
    closed = threading.Event()

    def send() -> None:
        with tandemlog.Producer(cluster.endpoints.split(",")) as producer:
            while not closed.is_set():
                try:
                    producer.send(Message(TOPIC, b"x" * 200)).result(30)
                    seen.acknowledged.append(time.monotonic() - began)
                except (TandemlogError, TimeoutError):
                    seen.failed += 1

    with threads([send] * PRODUCERS, closed):
        yield


@contextmanager
def looked_at(cluster: LocalCluster, seen: Seen, began: float) -> Iterator[None]:
    """The consoles, in turn, since one of them goes away."""
    closed = threading.Event()

    def look() -> None:
        while not closed.wait(STEP_S):
            answers = [each for node in cluster.nodes if (each := asked(node.http_endpoint))]
            if answers:
                newest = max(answers, key=lambda each: max(row["epoch"] for row in each["nodes"]))
                states = {row["node"]: kind(row) for row in newest["nodes"]}
                seen.nodes.append((time.monotonic() - began, states))

    with threads([look], closed):
        yield


@contextmanager
def threads(works: Sequence[Any], closed: threading.Event) -> Iterator[None]:
    running = [threading.Thread(target=each, daemon=True) for each in works]
    for each in running:
        each.start()
    try:
        yield
    finally:
        closed.set()
        for each in running:
            each.join(40)


def asked(endpoint: str) -> Any:
    try:
        url = f"http://{endpoint}/console/api/cluster"
        with urllib.request.urlopen(url, timeout=1) as answer:
            return json.loads(answer.read())
    except (OSError, urllib.error.URLError):
        return None


def kind(row: dict[str, Any]) -> str:
    if row["role"] == "master":
        return "master"
    if row["in_sync"]:
        return "sync"
    return "gone" if row["state"] == "unreachable" else "behind"


def drawn(seen: Seen, killed: str) -> Element:
    counts = Counter(int(each / STEP_S) for each in seen.acknowledged if each < END_S)
    most = max(counts.values())
    gap = max((b - a for a, b in pairwise(sorted(seen.acknowledged))), default=0.0)
    places = round(END_S / STEP_S)
    step = (WIDTH - LEFT) / places
    base = TOP + HEIGHT
    title = (
        f"kill -9 of the master {killed}: longest time between two acknowledged puts {gap:.2f} s; "
        f"{len(seen.acknowledged):,} acknowledged, {seen.failed} failed"
    )
    parts = [
        element("text", title, x=0, y=16),
        element("text", f"{most}", x=LEFT - 8, y=TOP + 10, text_anchor="end", class_="quiet"),
        element("text", "acked in", x=0, y=TOP + 60, class_="quiet"),
        element("text", "0.1 s", x=0, y=TOP + 76, class_="quiet"),
        element("line", x1=LEFT, x2=WIDTH, y1=base, y2=base, class_="axis"),
    ]
    for place in range(places):
        height = counts[place] / most * HEIGHT
        x, width = LEFT + place * step, step * 0.85
        if height:
            bar = {"x": f"{x:.1f}", "width": f"{width:.1f}"}
            parts.append(
                element(
                    "rect", **bar, y=f"{base - height:.1f}", height=f"{height:.1f}", class_="bar"
                )
            )
    for number, name in enumerate(NODES):
        y = base + 14 + number * (BAND + 6)
        parts.append(element("text", name, x=0, y=y + 13))
        parts += bands(seen, name, y)
    bottom = base + 14 + len(NODES) * (BAND + 6)
    for at, word in ((KILL_S, f"kill -9 {killed}"), (BACK_S, f"{killed} starts again")):
        x = LEFT + at / END_S * (WIDTH - LEFT)
        parts.append(element("line", x1=x, x2=x, y1=TOP - 8, y2=bottom, class_="kill"))
        parts.append(element("text", word, x=x + 4, y=TOP - 8, class_="quiet"))
    for number, (name, word) in enumerate(
        (("master", "master"), ("sync", "in sync"), ("behind", "not in sync"), ("gone", "gone"))
    ):
        x = LEFT + number * 130
        parts.append(element("rect", x=x, y=bottom + 8, width=14, height=14, class_=name))
        parts.append(element("text", word, x=x + 20, y=bottom + 20, class_="quiet"))
    size = {"viewBox": f"0 0 {WIDTH} {bottom + 30}", "width": WIDTH, "height": bottom + 30}
    svg = element("svg", element("title", title), element("style", STYLE), *parts, role="img")
    svg.set("xmlns", "http://www.w3.org/2000/svg")
    for name, value in size.items():
        svg.set(name, str(value))
    return svg


def bands(seen: Seen, name: str, y: int) -> Iterator[Element]:
    """One for each stretch of time with the same state."""
    rows = [(at, states.get(name, "gone")) for at, states in seen.nodes if at < END_S]
    begin = 0.0
    for index, (_, state) in enumerate(rows):
        following = rows[index + 1] if index + 1 < len(rows) else (END_S, "")
        if following[1] == state:
            continue
        end = following[0] if following[1] else END_S
        x = LEFT + begin / END_S * (WIDTH - LEFT)
        width = (end - begin) / END_S * (WIDTH - LEFT)
        place = {"x": f"{x:.1f}", "width": f"{width:.1f}"}
        yield element("rect", **place, y=y, height=BAND, class_=state)
        begin = end


if __name__ == "__main__":
    main()
