"""What a slave says while its master is away: plain words, in the log once."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.clock import FakeClock
from fakes.fake_cluster import FakeCluster
from fakes.fake_store import FakeDisk, FakeStore
from helpers.made_certificates import Authority
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog.transport.security import Security
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.errors import HandshakeRefusedError
from tandemlog_server.ha.slave.session import Disconnect
from tandemlog_server.ha.slave.slave import ReplicationSlave, StreamEndedError
from tandemlog_server.node.certs.owners import OwnerKind

CONFIG = HaConfig(
    "c", "s", role=Role.SLAVE, master_endpoint="127.0.0.1:1", reconnect_min_ms=1, reconnect_max_ms=2
)
GONE = "the master n0 (127.0.0.1:1) does not respond; trying again"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.name == "tandemlog_server.ha.slave.slave"
    ]


async def test_a_master_that_is_gone_is_one_line_however_often_it_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Port 1 is closed: every attempt fails, in the words of the network."""
    tries, enough = 0, asyncio.Event()

    def lost(reason: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 4:
            enough.set()

    clock = FakeClock()
    slave = ReplicationSlave(
        FakeStore(FakeDisk()), CONFIG, clock, files=MemoryFiles(), master_id="n0", on_lost=lost
    )
    with caplog.at_level(logging.INFO):
        following = asyncio.create_task(slave.run())
        async with asyncio.timeout(20):
            await enough.wait()
        clock.advance(7.0)
        (row,) = slave.members()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert lines(caplog) == [GONE]
    assert (row.state, row.detail) == ("no-master", GONE)
    assert row.lag_seconds >= 7.0


async def follow(slave: ReplicationSlave, fault: Exception) -> None:
    async def fails() -> None:
        raise fault

    slave._one_stream = fails  # type: ignore[method-assign]
    with pytest.raises(type(fault)):
        await slave._follow()


async def test_another_reason_is_another_line(caplog: pytest.LogCaptureFixture) -> None:
    slave = ReplicationSlave(FakeStore(FakeDisk()), CONFIG, FakeClock())
    refused = HandshakeRefusedError("n0 is not the master now", retry=True)
    with caplog.at_level(logging.INFO):
        for fault in (StreamEndedError("a"), StreamEndedError("a"), refused, refused):
            await follow(slave, fault)
        await follow(slave, StreamEndedError("a"))
    assert lines(caplog) == ["a", "this slave cannot follow: n0 is not the master now", "a"]


async def test_a_slave_that_is_refused_permanently_shows_it() -> None:
    slave = ReplicationSlave(FakeStore(FakeDisk()), CONFIG, FakeClock())
    await follow(slave, HandshakeRefusedError("it knows more", retry=False))
    assert (slave.state.name, slave.state.fault) == ("refused", "it knows more")


async def test_without_an_id_the_endpoint_is_its_name() -> None:
    slave = ReplicationSlave(FakeStore(FakeDisk()), CONFIG, FakeClock())
    said = await slave._reason(Disconnect("UNAVAILABLE: no", silent=True))
    assert said == "the master 127.0.0.1:1 does not respond; trying again"
    assert await slave._reason(Disconnect("INTERNAL: broken")) == (
        "no stream from the master: INTERNAL: broken"
    )


def node_files(authority: Authority, name: str, days_ago: float = 0) -> Security:
    made = authority.make(OwnerKind.NODE, name, ["127.0.0.1"], days_ago)
    return Security(authority.ca_file, str(made), str(made.with_suffix(".key")))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("the master's has expired", "the node's certificate has expired"),
        (
            "the master names another host",
            "the node's certificate names other hosts than 127.0.0.1",
        ),
        ("another authority", "the node's certificate is signed by another authority"),
        ("its own has expired", "this side's certificate, cert_file "),
        ("none", "the node requires a client certificate"),
    ],
)
async def test_the_certificate_that_is_wrong_is_named(
    case: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Authority(tmp_path / "ours")
    security = node_files(ours, "s", days_ago=5 if case.startswith("its own") else 0)
    credentials = ours.node("m", days_ago=5 if case.startswith("the master's") else 0)
    if case == "another authority":
        credentials = Authority(tmp_path / "theirs").node("m")
    if case == "the master names another host":
        credentials = ours.node("m", ["db1.example"])
    if case == "none":
        security = Security(ours.ca_file)
    lost = asyncio.Event()
    async with FakeCluster(credentials=credentials) as cluster:
        endpoint = cluster.endpoints[0]
        config = replace(CONFIG, master_endpoint=endpoint, security=security)
        store = FakeStore(FakeDisk())
        slave = ReplicationSlave(
            store, config, FakeClock(), files=MemoryFiles(), on_lost=lambda _: lost.set()
        )
        with caplog.at_level(logging.INFO):
            following = asyncio.create_task(slave.run())
            async with asyncio.timeout(20):
                await lost.wait()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    assert lines(caplog)[0].startswith(f"no stream from the master {endpoint}: {words}")


async def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    security = Security(token_file=str(tmp_path / "none"))
    slave = ReplicationSlave(
        FakeStore(FakeDisk()), replace(CONFIG, security=security), FakeClock(), files=MemoryFiles()
    )
    with caplog.at_level(logging.INFO):
        following = asyncio.create_task(slave.run())
        async with asyncio.timeout(20):
            while not lines(caplog):  # noqa: ASYNC110 - the slave tells nobody else
                await asyncio.sleep(0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert "none: No such file or directory" in lines(caplog)[0]
