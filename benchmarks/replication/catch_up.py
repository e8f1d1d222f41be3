"""A slave with an empty disk takes the log, against a bare gRPC stream of the same chunks.

The two are measured in turns, five times. The log is long enough for a steady state. The nodes are
asked seldom: every question takes processor time from them.
"""

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

import tandemlog
from benchmarks.harness.figures import Figure, MemoryAtHand, median_of
from benchmarks.harness.nodes import cluster, free_base
from benchmarks.harness.puts import TOPICS, send_many_rate
from tandemlog_server.cli.local.local_cluster import LocalCluster
from tandemlog_server.ha.config import HaConfig

CHUNK = HaConfig("bench", "n0").chunk_bytes
BARE_BYTES = 1_500 << 20
BURST = 500_000
BURSTS = 12
MESSAGES = BURST * BURSTS
RUNS = 5
POLL_S = 0.1
LIMIT_S = 300
"""Many times the usual time: then the slave has stopped, or hangs."""
CLOSE_POLL_S = 0.02
"""From four fifths of the log on."""


async def _serve(port: int) -> None:
    chunk = bytes(CHUNK)

    async def stream(_: bytes, __: object) -> AsyncIterator[bytes]:
        for _number in range(BARE_BYTES // CHUNK):
            yield chunk

    handler = grpc.method_handlers_generic_handler(
        "Bare", {"Stream": grpc.unary_stream_rpc_method_handler(stream)}
    )
    server = aio.server(options=[("grpc.max_send_message_length", 64 << 20)])
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def serve(port: int) -> None:
    asyncio.run(_serve(port))


async def _receive(port: int) -> float:
    options: list[tuple[str, Any]] = [("grpc.max_receive_message_length", 64 << 20)]
    async with aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        await asyncio.wait_for(channel.channel_ready(), 30)
        began = time.perf_counter()
        size = 0
        call: Any = channel.unary_stream("/Bare/Stream")
        async for chunk in call(b""):
            size += len(chunk)
        return size / (time.perf_counter() - began)


def bare_rate() -> float:
    """Bytes per second of a server stream that only sends; the client drops the bytes."""
    port = free_base()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
    process.start()
    try:
        return median_of(3, lambda: asyncio.run(_receive(port)))
    finally:
        process.kill()
        process.join()


def catch_up(local: LocalCluster, memory: MemoryAtHand) -> tuple[float, float]:
    """Start the stopped slave. Returns log bytes/s from the first bytes seen until the whole log is
    durable there, those first bytes not counted; and messages/s of its reput from then until all
    are dispatched. `memory` is for the slave's page cache. Raises RuntimeError if the slave ends,
    or needs more than LIMIT_S."""
    slave = local.nodes[1]
    with tandemlog.Admin(local.nodes[0].endpoint) as admin:
        end = admin.cluster().nodes[0].wrote_offset
        local.start_node(slave)
        first = durable = done = 0.0
        begin = 0
        poll_s = CLOSE_POLL_S
        limit = time.perf_counter() + LIMIT_S
        while not done:
            if slave.exit_code is not None or time.perf_counter() > limit:
                raise RuntimeError(f"the slave did not catch up to {end}: {slave.last_words()}")
            nodes = {node.node_id: node for node in admin.cluster().nodes}
            state, now = nodes.get(slave.node_id), time.perf_counter()
            if state is not None and state.wrote_offset:
                if not first:
                    first, begin = now, state.wrote_offset
                    memory.release()
                near = state.flushed_offset >= 0.8 * end and not durable
                poll_s = CLOSE_POLL_S if near else POLL_S
                if state.flushed_offset >= end and not durable:
                    durable = now
                if state.reput_offset >= end:
                    done = now
            time.sleep(poll_s)
    return (end - begin) / max(durable - first, 1e-9), MESSAGES / max(done - first, 1e-9)


def empty(local: LocalCluster) -> None:
    """Kill the slave and delete its store."""
    slave = local.nodes[1]
    if slave.process is not None:
        slave.process.kill()
        slave.process.wait()
    for path in sorted((local.directory / slave.node_id / "store").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def run(folder: Path) -> list[Figure]:
    bare, logs, reputs = [], [], []
    with cluster(folder, TOPICS, slaves=1, replication="async", coordinator="none") as local:
        empty(local)
        for _ in range(BURSTS):
            send_many_rate([local.nodes[0].endpoint], BURST)
        for _ in range(RUNS):
            bare.append(bare_rate())
            empty(local)
            bytes_per_s, messages_per_s = catch_up(local, MemoryAtHand(2 << 30))
            logs.append(bytes_per_s)
            reputs.append(messages_per_s)
    return [
        Figure(
            "slave catch-up, log",
            statistics.median(logs) / 1e6,
            "MB/s",
            goal=0.5,
            reference=statistics.median(bare) / 1e6,
        ),
        Figure(
            "reput on the slave while it catches up",
            statistics.median(reputs),
            "messages/s",
            goal=600_000,
        ),
    ]
