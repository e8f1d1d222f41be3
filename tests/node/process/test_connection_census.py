"""Which connections are closed: those that hold a place of others, and never one in use."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from tandemlog_server.node.access.doorkeeper import open_to_all
from tandemlog_server.node.process.connection_census import (
    FILES_FOR_S,
    ConnectionCensus,
    Descriptors,
    superfluous,
)


def peers(host: str, count: int, first: int = 1) -> list[str]:
    return [f"ipv4:{host}:{first + number}" for number in range(count)]


def chosen(
    rows: list[str],
    *,
    limit: int = 100,
    used: tuple[str, ...] = (),
    met: tuple[str, ...] = (),
    idle_s: float = 0,
) -> list[str]:
    return superfluous(
        rows,
        limit,
        in_use=used.__contains__,
        has_met=met.__contains__,
        idle_s=lambda _: idle_s,
    )


def test_few_connections_stay() -> None:
    assert chosen(peers("10.0.0.1", 75)) == []


def test_the_oldest_idle_ones_above_the_share_go() -> None:
    rows = peers("10.0.0.1", 90)
    assert chosen(rows) == rows[:15]


def test_strangers_go_first_and_what_is_in_use_never() -> None:
    rows = peers("10.0.0.1", 90)
    assert chosen(rows, met=tuple(rows[:80])) == rows[80:] + rows[:5]
    assert chosen(rows, used=tuple(rows)) == []


def test_one_host_does_not_cost_another() -> None:
    other = peers("10.0.0.2", 10)
    rows = peers("10.0.0.1", 90) + other
    assert not set(other) & set(chosen(rows))


def test_a_stranger_that_never_asks_is_closed() -> None:
    rows = peers("10.0.0.1", 3)
    assert chosen(rows, idle_s=60, met=(rows[0],), used=(rows[1],)) == [rows[2]]


async def test_sockets_of_this_process_are_found_and_shut_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        clients, accepted = [], []
        for _ in range(40):
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            accepted.append(stack.enter_context(listener.accept()[0]))
        keeper = open_to_all(asyncio.get_running_loop().time)
        used = f"ipv4:127.0.0.1:{clients[0].getsockname()[1]}"
        keeper.enter(used, stream=False)
        census = ConnectionCensus(keeper, port, 20)
        assert await census.close_superfluous()
        assert census.closed_total == 25
        accepted[0].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            assert accepted[0].recv(1) != b"", "the one in use was closed"
        closed = 0
        for each in accepted[1:]:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                closed += each.recv(1) == b""
        assert closed == 25


def test_files_are_looked_at_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    status = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        looked_at.append(descriptor)
        return status(descriptor)

    with (tmp_path / "file").open("wb") as file, socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        own = Descriptors(port)
        assert own.accepted(0.0) == []
        monkeypatch.setattr(os, "fstat", fstat)
        own.accepted(FILES_FOR_S - 1)
        assert file.fileno() not in looked_at
        assert listener.fileno() in looked_at
        # no more than the sockets count against the bound
        looked_at.clear()
        assert own.accepted(FILES_FOR_S - 1, len(os.listdir("/proc/self/fd"))) == []
        assert not looked_at
        own.accepted(FILES_FOR_S)
        assert file.fileno() in looked_at


def test_a_connection_with_the_number_of_a_closed_file_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        own = Descriptors(port)
        with (
            socket.create_connection(("127.0.0.1", port)),
            listener.accept()[0] as connection,
            (tmp_path / "file").open("wb") as file,
        ):
            number = file.fileno()
            assert [each.descriptor for each in own.accepted(0.0)] == [connection.fileno()]
            file.close()
            os.dup2(connection.fileno(), number)
            try:
                assert len(own.accepted(1.0)) == 1
                found = own.accepted(FILES_FOR_S)
            finally:
                os.close(number)
            assert {each.descriptor for each in found} == {number, connection.fileno()}
