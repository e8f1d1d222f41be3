"""Which way puts and pulls go to a node, when its data connections come and go."""

import asyncio
import socket
import threading

import pytest

from fakes.secured_node import until
from tandemlog.cluster import data_path
from tandemlog.cluster.data_path import DataPath, Offer


async def nobody() -> Offer | None:
    return None


async def test_a_stream_that_opens_while_the_client_is_closed_goes_by_grpc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    there = threading.Event()

    def connect(*_: object) -> socket.socket:
        there.wait(10)
        return ours

    monkeypatch.setattr(data_path, "connected", connect)
    monkeypatch.setattr(data_path, "WAIT_S", 10)
    path = DataPath("n0", "auto", nobody)
    path.offered(1, b"key")
    opening = asyncio.create_task(path.stream())
    await asyncio.sleep(0)
    path.close()
    there.set()
    assert await opening is None
    await until(lambda: ours.fileno() == -1)
    theirs.close()
