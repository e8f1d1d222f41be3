"""A node with 4,096 topics of 8 queues in use, beside one with 64: puts, pulls, a group, starts.

The same number of messages goes to both nodes in turns, by columns with a topic for each row: each
of the 32,768 queues of the large node gets some in every round. Then what grows with the queues and
not with the messages: one commit of all offsets, the lag of a group, a scrape, memory, descriptors,
and the first put after a clean stop, and after kill -9 behind a burst.

The table of topics is written while the node is down: created one by one, each topic writes it.
"""

import json
import os
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

import tandemlog
from benchmarks.harness.figures import Figure, bring_in_memory, medians_in_turns
from benchmarks.harness.nodes import cluster, memory_mb, wait_ready
from benchmarks.harness.workload import BODY_BYTES, topics
from tandemlog import Message
from tandemlog.errors import NoMasterError
from tandemlog_server.cli.local.local_cluster import LocalCluster
from tandemlog_server.storage.disk.file_pool import MOST_OPEN
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.metadata.topics import TopicConfig, TopicTable
from tandemlog_server.storage.store_paths import StorePaths

FEW, MOST = 64, 4_096
QUEUES = 8
MESSAGES = MOST * QUEUES * 12
RUNS = 3
GROUP = "readers"
OTHER_FILES = 1_024
"""Descriptors that a node may have beside those of its queue files."""


def run(folder: Path) -> list[Figure]:
    with cluster(folder / "few", 0) as few, cluster(folder / "most", 0) as most:
        for local, count in ((few, FEW), (most, MOST)):
            _begin_with(local, count)
            _put(local, count)

        def once(rate: Callable[[LocalCluster, int], float], local: LocalCluster) -> float:
            bring_in_memory(folder, 1 << 30)
            return rate(local, FEW if local is few else MOST)

        puts, pulls = (
            medians_in_turns(RUNS, [partial(once, rate, local) for local in (few, most)])
            for rate in (_put, _pull)
        )
        process = _process_id(most)
        memory, files = memory_mb(process), len(os.listdir(f"/proc/{process}/fd"))
        return [
            Figure("send_many, 64 topics x 8 queues", puts[0], "messages/s", goal=300_000),
            _of_few("send_many, 4,096 topics x 8 queues", puts),
            Figure("pull, 64 topics x 8 queues", pulls[0], "messages/s", goal=300_000),
            _of_few("pull, 4,096 topics x 8 queues", pulls, goal=0.3),
            *_of_the_queues(most),
            Figure("memory of that node", memory, "MB", goal=350, at_most=True),
            Figure("its open files", files, "files", goal=_most_files(), at_most=True),
            *_starts(most),
        ]


def _most_files() -> int:
    """What a node may have open where this process may have as many as the node."""
    return min(RealFileSystem().open_limit() // 2, MOST_OPEN) + OTHER_FILES


def _of_few(name: str, pair: list[float], goal: float = 0.85) -> Figure:
    return Figure(name, pair[1], "messages/s", goal=goal, reference=pair[0])


def _begin_with(local: LocalCluster, topic_count: int) -> None:
    """Let the node begin again with its topics."""
    _stop(local)
    store = local.nodes[0].config.parent / "store"
    rows = {name: TopicConfig(name, QUEUES, QUEUES).encode() for name in topics(topic_count)}
    table = TopicTable(StorePaths(store).topics, RealFileSystem())
    table.load()
    table.replace_from_json(json.dumps({"topicConfigTable": rows}).encode())
    local.start_node(local.nodes[0])
    wait_ready(local)


def _put(local: LocalCluster, topic_count: int) -> float:
    """Messages a second, from the first column to the last acknowledgement."""
    names = topics(topic_count)
    chooser = np.random.default_rng(1)
    data = chooser.integers(0, 256, MESSAGES * BODY_BYTES, np.uint8)
    bodies = (data, np.arange(MESSAGES + 1, dtype=np.int64) * BODY_BYTES)
    places = chooser.permutation(np.arange(MESSAGES) % (topic_count * QUEUES))
    rows = [names[each] for each in (places // QUEUES).tolist()]
    queues = (places % QUEUES).astype(np.int32)
    with tandemlog.Producer(local.nodes[0].endpoint) as producer:
        began = time.perf_counter()
        result = producer.send_many(None, bodies, topics=rows, queues=queues)
        seconds = time.perf_counter() - began
    if result.count != MESSAGES:
        raise RuntimeError(f"{result.count} of {MESSAGES} acknowledged")
    wait_ready(local)
    return MESSAGES / seconds


def _pull(local: LocalCluster, topic_count: int) -> float:
    """Messages a second of one consumer that reads every queue from its begin to its end."""
    with (
        tandemlog.Consumer(local.nodes[0].endpoint) as consumer,
        consumer.follow(topics(topic_count), start=tandemlog.EARLIEST, until_end=True) as stream,
    ):
        began, count = time.perf_counter(), 0
        for batch in stream.batches():
            count += len(batch)
        return count / (time.perf_counter() - began)


def _of_the_queues(local: LocalCluster) -> list[Figure]:
    """One call each about all queues, after a first time."""
    endpoint, http = local.nodes[0].endpoint, local.nodes[0].http_endpoint
    with (
        tandemlog.Consumer(endpoint, group=GROUP) as consumer,
        tandemlog.Admin(endpoint) as admin,
    ):
        ends = {(each.topic, each.queue_id): each.max_offset for each in consumer.ranges()}
        if len(ends) != MOST * QUEUES:
            raise RuntimeError(f"{len(ends)} of {MOST * QUEUES} queues have messages")
        commit = _seconds(lambda: consumer.commit(ends))
        describe = _seconds(lambda: admin.describe_group(GROUP))
        lag = _seconds(lambda: admin.lag(GROUP))
    scrape = f"http://{http}/metrics"
    text = urllib.request.urlopen(scrape).read()
    metrics = _seconds(lambda: urllib.request.urlopen(scrape).read())
    of = f"{MOST * QUEUES:,} queues"
    return [
        Figure(f"commit of a group's offsets in {of}", commit, "s", goal=2, at_most=True),
        Figure("describe_group of it", describe, "s", goal=1, at_most=True),
        Figure("lag of it", lag, "s", goal=10, at_most=True),
        Figure("GET /metrics", metrics, "s", goal=1, at_most=True),
        Figure("its size", len(text) / 1e6, "MB", goal=1, at_most=True),
    ]


def _starts(local: LocalCluster) -> list[Figure]:
    """Seconds from the start of the process to its first answer to a put."""
    _stop(local)
    clean = _first_put(local)
    wait_ready(local)
    _put(local, MOST)
    process = local.nodes[0].process
    if process is not None:
        process.kill()
        process.wait()
    killed = _first_put(local)
    return [
        Figure("first put after a clean stop", clean, "s", goal=10, at_most=True),
        Figure("first put after kill -9", killed, "s", goal=20, at_most=True),
    ]


def _first_put(local: LocalCluster) -> float:
    began = time.perf_counter()
    local.start_node(local.nodes[0])
    while True:
        with suppress(NoMasterError), tandemlog.Producer(local.nodes[0].endpoint) as producer:
            producer.send(Message(topics(1)[0], b"the first one")).result(120)
            return time.perf_counter() - began


def _seconds(call: Callable[[], object]) -> float:
    """The shorter one of two times."""

    def once() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return min(once(), once())


def _stop(local: LocalCluster) -> None:
    process = local.nodes[0].process
    if process is not None:
        process.terminate()
        process.wait()


def _process_id(local: LocalCluster) -> int:
    process = local.nodes[0].process
    if process is None:
        raise RuntimeError("the node has no process")
    return process.pid
