"""Frames that a link has changed, between real nodes: both live, and are equal when it is over."""

import asyncio
import contextlib
import time
from pathlib import Path

import grpc
import pytest

from fakes.batches import Put
from fuzz import settings
from fuzz.methods import TOPIC, put_request
from fuzz.nodes import Attacked
from fuzz.proxy import Proxy
from helpers.running import Running, free_ports
from tandemlog.v1 import broker_pb2, broker_pb2_grpc

pytestmark = pytest.mark.fuzz


async def test_nodes_survive_what_a_link_does_to_frames(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    quick = {"replication": {"reconnect_max_ms": 200, "refused_retry_ms": 200}}
    cluster = Running(tmp_path, slaves=1, min_in_sync=2, extra=quick)
    link = f"127.0.0.1:{port}"
    cluster.slaves[0].settings["master"] = link
    try:
        async with Proxy(link, cluster.master.endpoint, settings.SEED) as proxy:
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(cluster.wait_in_sync)
            target = Attacked(cluster)
            await asyncio.to_thread(target.prepare)
            proxy.storm = True
            puts = await asyncio.to_thread(_put_for, cluster.master.endpoint)
            proxy.storm = False
            proxy.cut()
            print(f"fuzz: {proxy.changed} changed frames, {puts} puts")
            assert proxy.changed
            # each stream that breaks is worth some lines
            await asyncio.to_thread(target.check, 100 * proxy.changed)
            await asyncio.to_thread(target.check_stores)
    finally:
        await asyncio.to_thread(cluster.close)


def _put_for(endpoint: str) -> int:
    """Puts whose answers do not matter, for as long as the storm lasts."""
    deadline, count = time.monotonic() + settings.seconds("link"), 0
    with grpc.insecure_channel(endpoint) as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        while time.monotonic() < deadline:
            count += 1
            request = put_request(
                [Put(TOPIC, count % 4, b"storm" * 20)],
                durability=broker_pb2.NO_WAIT if count % 10 else broker_pb2.CLUSTER,
                timeout_ms=200,
            )
            with contextlib.suppress(grpc.RpcError):
                list(stub.Append(iter([request]), timeout=5))
            time.sleep(0.001)
    return count
