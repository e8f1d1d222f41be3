"""A slave with an empty disk takes the log, against a bare gRPC stream of the same chunks."""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

import tandemlog
from benchmarks.harness import Figure, best_of
from benchmarks.nodes import cluster, free_base
from benchmarks.produce import TOPICS, send_many_rate
from node.cluster_up import LocalCluster

CHUNK = 1 << 20
BARE_CHUNKS = 1_500
MESSAGES = 2_000_000


async def _serve(port: int) -> None:
    chunk = bytes(CHUNK)

    async def stream(_: bytes, __: object) -> AsyncIterator[bytes]:
        for _number in range(BARE_CHUNKS):
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
    """Bytes per second of a server stream that does nothing but send, received and dropped."""
    port = free_base()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
    process.start()
    try:
        return best_of(3, lambda: asyncio.run(_receive(port)))
    finally:
        process.kill()
        process.join()


def catch_up(made: LocalCluster) -> tuple[float, float]:
    """Start the stopped slave: log bytes/s until it holds the log durably, and messages/s of
    its reput from its first dispatch until it has dispatched them all."""
    slave = made.nodes[1]
    with tandemlog.Admin(made.nodes[0].endpoint) as admin:
        end = admin.cluster().nodes[0].wrote_offset
        made.start_node(slave)
        first = held = done = 0.0
        while not done:
            nodes = {node.node_id: node for node in admin.cluster().nodes}
            state, now = nodes.get(slave.node_id), time.perf_counter()
            if state is not None and state.wrote_offset:
                first = first or now
                if state.flushed_offset >= end and not held:
                    held = now
                if state.reput_offset >= end:
                    done = now
            time.sleep(0.01)
    return end / max(held - first, 1e-9), MESSAGES / max(done - first, 1e-9)


def run(folder: Path) -> list[Figure]:
    bare = bare_rate()
    with cluster(folder, TOPICS, slaves=1, replication="async") as made:
        process = made.nodes[1].process
        if process is not None:
            process.kill()
            process.wait()
        for _ in range(4):
            send_many_rate([made.nodes[0].endpoint], MESSAGES // 4)
        for path in sorted((made.directory / "n1" / "store").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        bytes_per_s, messages_per_s = catch_up(made)
    return [
        Figure("slave catch-up, log", bytes_per_s / 1e6, "MB/s", goal=0.5, reference=bare / 1e6),
        Figure(
            "reput on the slave while it catches up", messages_per_s, "messages/s", goal=600_000
        ),
    ]
