"""What one identity takes of a node is not taken from another one: real processes."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

import tandemlog
from fakes.secured_node import access_text, bearer, token
from helpers.machine_speed import slowness
from helpers.running import NodeProcess, Running
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.transport.data_frames import Kind, frame
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc

pytestmark = [pytest.mark.cluster, pytest.mark.quiet]

PRODUCERS = 20
OPTIONS = [("grpc.max_receive_message_length", 64 << 20)]
SLOW_S = 1.0
"""By so much may one caller lengthen the wait of another, on a machine of the limits."""
ANSWER_BYTES = 64 << 20
REST_BYTES = 64 << 20
"""What a node may need beside its budget for answers: one answer of each pull that it makes at a
time, and gaps that the allocator keeps."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("shares")
    access = folder / "access.toml"
    both = {"read": ["*"], "write": ["*"], "consume": ["*"]}
    access.write_text(access_text(greedy=both, modest=both, operator={"admin": True}))
    extra = {
        "security": {"access_file": access},
        "store": {"producers_kept": PRODUCERS},
        "limits": {"answer_bytes": ANSWER_BYTES},
    }
    running = Running(folder, extra=extra)
    try:
        node = running.master.start(wait=False)
        with tandemlog.Admin([node.endpoint], security=who("operator")) as admin:
            admin.create_topic("t", queues=1)
        yield node
    finally:
        running.close()


def who(name: str) -> tandemlog.Security:
    return tandemlog.Security(token=token(name))


def resident_bytes(node: NodeProcess) -> int:
    assert node.process is not None
    pages = Path(f"/proc/{node.process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def test_many_producers_of_one_keep_no_other_out(node: NodeProcess) -> None:
    hasty = ProducerOptions(delivery_timeout_ms=3_000)
    with ExitStack() as stack:
        for _ in range(PRODUCERS):
            made = tandemlog.Producer([node.endpoint], security=who("greedy"), options=hasty)
            stack.enter_context(made).send(tandemlog.Message("t", b"x")).result()
        one_more = tandemlog.Producer([node.endpoint], security=who("greedy"), options=hasty)
        with pytest.raises(tandemlog.TandemlogError, match="producers_kept"):
            stack.enter_context(one_more).send(tandemlog.Message("t", b"x")).result()
        began = time.monotonic()
        with tandemlog.Producer([node.endpoint], security=who("modest")) as other:
            other.send(tandemlog.Message("t", b"y")).result()
        assert time.monotonic() - began < SLOW_S * slowness()


def test_answers_that_are_not_taken_cost_no_other_its_reads(node: NodeProcess) -> None:
    with tandemlog.Producer([node.endpoint], security=who("modest")) as producer:
        producer.send_many("t", [bytes(1_000_000)] * 12)
    request = broker_pb2.PullRequest(
        positions=[broker_pb2.QueuePosition(topic="t", queue_id=0, queue_offset=0)],
        max_bytes=8 << 20,
    )
    pulls = b"".join(
        frame(number, Kind.PULL, request.SerializeToString()) for number in range(1, 20)
    )
    with grpc.insecure_channel(node.endpoint, OPTIONS) as channel, ExitStack() as stack:
        about = admin_pb2_grpc.AdminStub(channel).DescribeCluster(
            admin_pb2.DescribeClusterRequest(), metadata=bearer("greedy"), timeout=20
        )
        before = resident_bytes(node)
        for _ in range(6):  # 19 answers of 8 MB each: 900 MB are asked for
            each = stack.enter_context(socket.create_connection(("127.0.0.1", about.data_port)))
            each.sendall(frame(0, Kind.TOKEN, f"Bearer {token('greedy')}".encode()) + pulls)
        time.sleep(1.0)  # until what may be made is made; nothing says when
        broker = broker_pb2_grpc.BrokerStub(channel)
        slowest = 0.0
        for _ in range(5):
            began = time.monotonic()
            answer = broker.Pull(request, metadata=bearer("modest"), timeout=20)
            slowest = max(slowest, time.monotonic() - began)
            assert answer.queues[0].count, answer.error.message
        print(f"slowest pull {slowest:.3f} s")
        assert slowest < SLOW_S * slowness()
        more = resident_bytes(node) - before
        print(f"{more >> 20} MiB more than before")
        assert more < ANSWER_BYTES + REST_BYTES
        refused = broker.Pull(request, metadata=bearer("greedy"), timeout=20)
        assert "of them for this identity or host" in refused.error.message
