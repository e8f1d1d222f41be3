"""A hello needs the proof of its node: real slaves against a real master that asks for one."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from fakes.replicas import Replica, eventually
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Hello,
    Refusal,
    decode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.proof import NodeProof, why_no_node, why_not_proven
from tandemlog_server.ha.protocol.replication_service import PATH, Context

Make = Callable[..., Replica]


class Call:
    """A caller whose proof the test changes."""

    def __init__(self, proof: NodeProof) -> None:
        self.now = proof
        self.refusals: list[str] = []

    def proof(self) -> NodeProof:
        return self.now

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Replica] = []

    def make(node_id: str, call: Call | None = None) -> Replica:
        made.append(Replica(tmp_path, node_id))
        if call is not None:

            async def prove(context: Context) -> Call:
                return call

            made[-1].prove = prove
        return made[-1]

    yield make
    for each in reversed(made):
        await each.stop()


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (NodeProof("s", frozenset({"s"})), ""),
        (NodeProof("orders"), "no proof of a node: 'orders' is an identity without one"),
        (NodeProof("s2", frozenset({"s2"})), "of node 's', but its proof names another node: 's2'"),
        (NodeProof("s", frozenset({"s", "s2"})), "its proof names another node: 's2'"),
        (NodeProof("s", frozenset({"s"}), "of the cluster 'x'"), "node: of the cluster 'x'"),
    ],
)
def test_what_a_proof_is_worth(proof: NodeProof, said: str) -> None:
    reason = why_not_proven(proof, "s")
    assert said in reason
    assert bool(reason) is bool(said)
    assert why_no_node(proof) in ("", reason)


async def test_a_slave_with_its_own_proof_follows(replica: Make) -> None:
    call = Call(NodeProof("s", frozenset({"s"})))
    master, slave = replica("m", call), replica("s")
    await master.lead()
    master.put(5)
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.log() == master.log()
    assert call.refusals == []


async def test_a_slave_with_another_proof_is_told_which_and_nothing_is_kept(replica: Make) -> None:
    call = Call(NodeProof("s2", frozenset({"s2"})))
    master, slave = replica("m", call), replica("s")
    await master.lead()
    master.put(5)
    await slave.follow(master)
    await eventually(lambda: "names another node: 's2'" in slave.slave.state.fault)
    assert {row.node_id for row in master.master.members()} == {"m"}
    assert slave.store.log.wrote.value == 0
    # it comes again, and with the right proof it is let in
    call.now = NodeProof("s", frozenset({"s"}))
    await slave.caught_up(master)


async def test_a_client_holds_no_stream_by_saying_nothing(replica: Make) -> None:
    call = Call(NodeProof("orders"))
    master = replica("m", call)
    await master.lead()
    async with aio.insecure_channel(master.endpoint) as channel:
        stream: Any = channel.stream_stream(PATH)()
        frame = decode_master_frame(await stream.read())
    assert isinstance(frame, Refusal)
    assert "'orders' is an identity without one" in frame.reason
    assert len(call.refusals) == 1


async def test_a_proof_that_is_taken_away_ends_the_stream(replica: Make) -> None:
    call = Call(NodeProof("s", frozenset({"s"})))
    master, slave = replica("m", call), replica("s")
    await master.lead()
    await slave.follow(master)
    master.put(5)
    await slave.caught_up(master)
    call.now = NodeProof("s", fault="its token was revoked")
    await eventually(lambda: "its token was revoked" in slave.slave.state.fault)
    end = slave.store.log.wrote.value
    master.put(5)
    await eventually(lambda: len(call.refusals) > 2)
    assert slave.store.log.wrote.value == end


async def test_a_first_frame_that_is_no_hello_is_refused(replica: Make) -> None:
    call = Call(NodeProof("s", frozenset({"s"})))
    master = replica("m", call)
    await master.lead()

    async def said(data: bytes) -> str:
        async with aio.insecure_channel(master.endpoint) as channel:
            stream: Any = channel.stream_stream(PATH)()
            await stream.write(data)
            frame = decode_master_frame(await stream.read())
            assert isinstance(frame, Refusal)
            return frame.reason

    assert "has to be a hello" in await said(encode_slave_frame(Ack(1, "1", 0)))
    assert "hello" in await said(b"") or call.refusals
    hello = Hello("cluster", "m", "1", "m:1")  # even a node cannot come as its master
    assert "another node" in await said(encode_slave_frame(hello))
    assert len(call.refusals) == 3
    assert not master.master._streams
