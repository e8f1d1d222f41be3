"""Who opens connections and asks for nothing keeps no one out, and the store keeps its files."""

import contextlib
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tandemlog
from helpers.running import Running

pytestmark = [pytest.mark.cluster, pytest.mark.quiet]

OPEN_FILES = 512
CONNECTIONS = 700
SLOW_S = 5.0
"""A put takes milliseconds; this is what a loaded machine may add."""


@contextmanager
def hoard(endpoints: list[str], source: str = "127.0.0.2") -> Iterator[list[socket.socket]]:
    """CONNECTIONS to each of them, by another host than the clients of this test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened: list[socket.socket] = []
    try:
        for _ in range(CONNECTIONS):
            for endpoint in endpoints:
                host, port = endpoint.rsplit(":", 1)
                with contextlib.suppress(OSError):
                    opened.append(
                        socket.create_connection((host, int(port)), 1, source_address=(source, 0))
                    )
        yield opened
    finally:
        for each in opened:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections_of_another_host(tmp_path: Path) -> None:
    prlimit = shutil.which("prlimit")
    assert prlimit, "util-linux has it"
    running = Running(tmp_path, slaves=1, flush="sync", min_in_sync=2)
    for node in running.nodes:
        node.wrapper = (prlimit, f"--nofile={OPEN_FILES}")
    with running:
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic("t", queues=1)
        running.wait_in_sync()
        with tandemlog.Producer(running.endpoints) as producer:
            producer.send(tandemlog.Message("t", b"before")).result()
            with hoard(running.endpoints):
                slowest = 0.0
                for number in range(60):  # over the ends of log files
                    began = time.monotonic()
                    producer.send(tandemlog.Message("t", b"%d" % number + bytes(100_000))).result()
                    slowest = max(slowest, time.monotonic() - began)
                assert slowest < SLOW_S
                # a new client finds its way in, if not at the first try
                with tandemlog.Producer(running.endpoints) as another:
                    another.send(tandemlog.Message("t", b"another")).result()
                states = [node.status() for node in running.nodes]
                print(f"slowest put {slowest:.3f} s")
        running.wait_in_sync()
        assert None not in states
        logs = "\n".join(node.log.read_text() for node in running.nodes)
        assert "accepts no more writes" not in logs
        found = running.slaves[0].read_queue("t", 0)
        assert len(found) == 62
