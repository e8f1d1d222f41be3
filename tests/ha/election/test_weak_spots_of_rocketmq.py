"""Weak spots of RocketMQ's controller mode, played here: docs/decisions/0031 has them all."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fakes.clock import FakeClock
from fakes.election import KEYS, record, up
from fakes.fake_store import FakeDisk, FakeStore
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.v1 import broker_pb2
from tandemlog_server.ha.config import HaConfig, Replication, Role
from tandemlog_server.ha.election.role_loop import RANK_DELAY_S, ElectionRules, Own, RoleLoop, Send
from tandemlog_server.ha.election.snapshot import Snapshot
from tandemlog_server.ha.errors import HandshakeRefusedError
from tandemlog_server.ha.master import replication_master
from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.ha.protocol.chunk_codec import Chunk
from tandemlog_server.ha.protocol.frames import Answer, Hello, HelloAction
from tandemlog_server.ha.protocol.handshake import SlaveView, check_answer
from tandemlog_server.ha.slave.session import Append, Disconnect, SlaveSession
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.roles.master_role import MasterRole

BEYOND = 1 << 31
ANSWER = Answer(
    HelloAction.CONTINUE, 100, master_id="a", master_incarnation="1", epoch=5,
    epochs=(EpochEntry(1, 0),), file_size=4096, max_offset=100, proof_start=100,
)  # fmt: skip
MINE = SlaveView(0, 100, 50, 4096, accepted_epoch=4, epochs=(EpochEntry(1, 0),))


class Alone:
    """A master that needs no other node for an acknowledgement."""

    epoch = 5
    config = SimpleNamespace(mode=Replication.SYNC_DEGRADE)

    def acts_alone(self) -> bool:
        return True

    def stood_still(self) -> bool:
        return False

    def admission(self) -> None:
        return None


@pytest.mark.parametrize("fault", ["", "its lease has ended"])
def test_rocketmq_6662_a_master_that_acts_alone_stops_with_its_lease(fault: str) -> None:
    """A broker stayed master until it heard of a higher epoch, and both took messages."""
    position = SimpleNamespace(value=0)
    role = MasterRole(
        SimpleNamespace(log=SimpleNamespace(wrote=position), confirmed=position),  # type: ignore[arg-type]
        Alone(),  # type: ignore[arg-type]
        lease_fault=lambda: fault,
    )
    if not fault:
        role.admit(broker_pb2.CLUSTER)
        assert role.epoch() == 5
        return
    assert role.epoch() is None
    with pytest.raises(RequestRefusedError, match="lease has ended"):
        role.admit(broker_pb2.CLUSTER)


@pytest.mark.parametrize("master_epoch", [4, 6])
def test_rocketmq_a_frame_of_another_epoch_is_not_stored(master_epoch: int) -> None:
    """The result of appending a lower epoch was ignored, and the data were stored all the same."""
    config = HaConfig("c", "b", role=Role.SLAVE, master_endpoint="a:1")
    hello = Hello("c", "b", "1", epochs=(EpochEntry(1, 0),), max_offset=100)
    session = SlaveSession(hello, MINE, config, 0.0)
    session.receive(ANSWER, 0.0)
    session.prepared(100, 0, 0.0)
    frame = Chunk(
        100, epoch=1, epoch_start=0, confirm=0, max_offset=150, sent_at_ms=0,
        master_epoch=master_epoch, data=b"x" * 50,
    )  # fmt: skip
    actions = session.receive(frame, 0.0)
    assert not any(isinstance(action, Append) for action in actions)
    assert any(isinstance(action, Disconnect) for action in actions)


def test_rocketmq_a_deposed_master_is_refused_by_the_slave() -> None:
    check_answer(ANSWER, MINE)
    with pytest.raises(HandshakeRefusedError, match="deposed master"):
        check_answer(replace(ANSWER, epoch=3), MINE)


@pytest.mark.parametrize("ahead", [BEYOND, BEYOND + 5, 1 << 33, (1 << 63) - 6])
def test_rocketmq_logs_are_compared_beyond_two_gibibytes(ahead: int) -> None:
    """A difference of two positions was cast to 32 bits: the shorter log was elected."""
    short, long = (
        up("b", end=5, lease=12),
        up("c", end=5 + ahead if ahead < 1 << 62 else ahead, lease=13),
    )
    snapshot = Snapshot(
        revision=10, uuid="uuid", record=record("a", "b", "c"), record_revision=5,
        members={"b": short, "c": long},
    )  # fmt: skip
    rules = ElectionRules(Replication.SYNC, required=2)
    first = RoleLoop(KEYS, rules).decide(snapshot, Own(long, lease=13, uuid="uuid"), 0.0, 1, "")
    assert isinstance(first, Send)
    late = RoleLoop(KEYS, rules)
    own = Own(short, lease=12, uuid="uuid")
    assert not isinstance(late.decide(snapshot, own, 0.0, 1, ""), Send)
    assert isinstance(late.decide(snapshot, own, RANK_DELAY_S, 1, ""), Send)


async def test_rocketmq_7219_an_error_does_not_end_the_care_for_the_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception ended the periodic check for ever: no dead slave left the set any more."""
    monkeypatch.setattr(replication_master, "TICK_S", 0.0)
    monkeypatch.setattr(replication_master, "FAILED_TICK_S", 0.0)
    master = ReplicationMaster(FakeStore(FakeDisk()), HaConfig("c", "a"), FakeClock())
    ticks, enough = 0, asyncio.Event()

    async def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks < 3:
            raise ZeroDivisionError
        enough.set()

    monkeypatch.setattr(master, "_tick", tick)
    task = asyncio.create_task(master._tick_for_ever())
    async with asyncio.timeout(5):
        await enough.wait()
    task.cancel()
