"""RocketMQ's clients of the 5.x API, unchanged, on nodes, and while the master is killed."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.authority import Authority
from fakes.inner_node import running
from fakes.messaging_client import DOOR
from fakes.secured_node import settings
from helpers.elected import Elected
from helpers.running import Running, free_ports
from interop.messaging_clients import Program, java_program, node_program, python_program, seen_by
from interop.messaging_scenarios import OF_NODE, SCENES, seen_of
from tandemlog import Admin, WorkAdmin

pytestmark = pytest.mark.interop

TOPIC = "Scenes"
LOAD_S = 40
WITH_NODE = pytest.mark.skipif(shutil.which("npm") is None, reason="Node.js is not there")
NODE = pytest.param(node_program, marks=WITH_NODE)
SECRET = "a-secret-of-orders"
ACCESS = f"""
[[identity]]
name = "orders"
access_keys = [{{ key = "orders-key", secret = "{SECRET}" }}]
write = ["{TOPIC}"]
read = ["{TOPIC}"]
consume = ["readers"]
"""


@contextmanager
def a_node(folder: Path) -> Iterator[tuple[str, str]]:
    """Its port for these clients, and its endpoint for ours."""
    (port,) = free_ports(1)
    extra: dict[str, Any] = {
        "rocketmq_clients": {"grpc_listen": f"127.0.0.1:{port}"},
        "transactions": {"check_after_ms": 2_000, "check_interval_ms": 2_000},
    }
    with Running(folder, extra=extra) as running:
        yield f"127.0.0.1:{port}", running.master.endpoint


@pytest.mark.parametrize("program", [python_program, java_program, NODE])
def test_a_client_of_all_scenarios(tmp_path: Path, program: Program) -> None:
    with a_node(tmp_path / "node") as (address, endpoint):
        with Admin(endpoint) as admin:
            admin.create_topic(TOPIC, 4)
        with WorkAdmin(endpoint) as work:
            work.set_policy("push", backoff=[1.0])
            work.set_policy("ordered", backoff=[1.0], ordered="queue")
            work.set_policy("buried", backoff=[1.0], ordered="queue", max_attempts=2)
        seen = seen_by(program(tmp_path / "home", address, "scenes"))
    expected = OF_NODE if program is node_program else SCENES
    by_scenario = seen_of(seen)
    assert {name: by_scenario[name] for name in expected} == expected


async def test_the_python_client_by_tls(tmp_path: Path) -> None:
    """It has an access key: it knows the node by its certificate, and shows none of its own."""
    authority = Authority()
    config = settings(tmp_path / "node", authority=authority, access=ACCESS, rocketmq_clients=DOOR)
    async with running(config) as node:
        address = node.endpoints.rocketmq_grpc
        arguments = (tmp_path / "home", address, "secured", "orders-key", SECRET)
        program = python_program(*arguments, roots=config.tls.ca_file)
        seen = await asyncio.to_thread(seen_by, program)
    assert (seen["sent"], seen["received"]) == (1, ["secured"])
    (refused,) = seen["refused"]
    assert "Theirs" in refused


@pytest.mark.lane("elections")
def test_the_java_client_while_the_master_is_killed(tmp_path: Path) -> None:
    """The others are in test_rocketmq_clients_failover.py."""
    cluster = Elected(tmp_path / "nodes")
    ports = free_ports(len(cluster.nodes))
    for node, port in zip(cluster.nodes, ports, strict=True):
        node.settings["rocketmq_clients"] = {"grpc_listen": f"127.0.0.1:{port}"}
    with cluster:
        cluster.the_master()
        cluster.wait_in_sync(count=3)
        with Admin(cluster.endpoints) as admin:
            admin.create_topic(TOPIC, 4)
        endpoints = ";".join(f"127.0.0.1:{port}" for port in ports)
        program = java_program(tmp_path / "home", endpoints, "load", str(LOAD_S))
        time.sleep(LOAD_S / 3)
        cluster.the_master().kill()
        seen = seen_by(program)
        master = cluster.the_master()
        stored = [
            record.body for queue_id in range(4) for record in master.read_queue(TOPIC, queue_id)
        ]
    print(seen)
    assert seen["missing"] == []
    assert len(stored) == len(set(stored))  # a send that is tried again is stored once
    assert seen["acknowledged"] > 100
    assert len(seen["failed"]) <= 2
