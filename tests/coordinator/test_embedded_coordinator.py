"""The embedded coordinator in this process: gRPC, a real file, and a clock that is told."""

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from conformance.coordinator_suite import CoordinatorSuite, put, value_of
from fakes.clock import FakeClock
from fakes.coordinator_machines import EMPTY
from helpers.machine_speed import slowness
from helpers.running import free_ports
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator import methods
from tandemlog_server.ha.coordinator.coordinator import Coordinator
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    UnknownOutcomeError,
)
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.ha.coordinator.methods import (
    COMPACT,
    PUT,
    RANGE,
    STATUS,
    TXN,
    Answer,
    Method,
    Request,
)
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.coordinator.values import Get, KeyRange, Put, Txn
from tandemlog_server.node.embedded_coordinator.database import SqliteDatabase
from tandemlog_server.node.embedded_coordinator.limits import Limits
from tandemlog_server.node.embedded_coordinator.server import CoordinatorServer
from tandemlog_server.node.embedded_coordinator.state_machine import Changes

PATIENT = {"attempt_s": 10.0, "budget_s": 20.0, "probe_s": 10.0}


class OpenedEmbedded:
    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.clock = FakeClock()
        ids = itertools.count(1)
        self.database = SqliteDatabase(folder, lambda: next(ids))
        self.endpoint = f"127.0.0.1:{free_ports(1)[0]}"
        self.server = CoordinatorServer(
            self.database, self.endpoint, limits, monotonic=self.clock.monotonic
        )
        self.clients: list[Coordinator] = []

    def client(self, **options: float) -> Coordinator:
        settings = CoordinatorOptions((self.endpoint,), **{**PATIENT, **options})  # type: ignore[arg-type]
        made = EtcdCoordinator(settings)
        self.clients.append(made)
        return made

    def key(self, name: str) -> bytes:
        return b"/" + name.encode()

    async def compact(self) -> None:
        await self.raw(COMPACT, pb.CompactionRequest(revision=self.server.machine.revision))

    async def until(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(600):
            if await true():
                return
            self.clock.advance(0.1)
            self.server.tick()
        raise AssertionError(what)

    async def raw(self, method: Method[Request, Answer], request: Request) -> Answer:
        async with aio.insecure_channel(self.endpoint) as channel:
            call = channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
            answer: Answer = await call(request, timeout=20)
            return answer

    async def close(self) -> None:
        for each in self.clients:
            await each.close()
        await self.server.stop()
        self.database.close()


@pytest_asyncio.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedEmbedded]:
    made = OpenedEmbedded(tmp_path)
    await made.server.start()
    yield made
    await made.close()


class TestEmbeddedCoordinator(CoordinatorSuite):
    """In this process."""


async def test_t_sent_is_the_callers_clock_before_sending(opened: OpenedEmbedded) -> None:
    times = itertools.count(100.0, 0.001)
    told: list[float] = []

    def monotonic() -> float:
        told.append(next(times))
        return told[-1]

    client = EtcdCoordinator(CoordinatorOptions((opened.endpoint,), **PATIENT), monotonic=monotonic)  # type: ignore[arg-type]
    lease = await client.grant_lease(60)
    asked = len(told)
    renewed = await client.keep_alive(lease.lease_id)
    assert renewed.t_sent in told[asked:]
    assert renewed.t_sent <= told[-1]
    await client.close()


async def test_requests_that_are_none_are_refused(opened: OpenedEmbedded) -> None:
    async with aio.insecure_channel(opened.endpoint) as channel:
        for path, data, code in (
            (TXN.path, b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (PUT.path, bytes(3 << 19) + b"1", grpc.StatusCode.INVALID_ARGUMENT),
            ("/etcdserverpb.KV/Nothing", b"", grpc.StatusCode.UNIMPLEMENTED),
        ):
            call: Any = channel.unary_unary(path)
            with pytest.raises(aio.AioRpcError) as refused:
                await call(data, timeout=20)
            assert refused.value.code() is code
    assert await value_of(opened.client(), b"k") is None


async def test_numbers_that_no_enum_has_are_refused(opened: OpenedEmbedded) -> None:
    """proto3 gives them on, and a KeyError would end the process."""
    compare = pb.Compare(key=b"k")
    requests: Sequence[tuple[Method[Any, Any], Any]] = (
        (RANGE, pb.RangeRequest(key=b"k", sort_target=99)),  # type: ignore[arg-type]
        (RANGE, pb.RangeRequest(key=b"k", sort_order=99)),  # type: ignore[arg-type]
        (TXN, pb.TxnRequest(compare=[pb.Compare(key=b"k", result=99)])),  # type: ignore[arg-type]
        (TXN, pb.TxnRequest(compare=[pb.Compare(key=b"k", target=99)])),  # type: ignore[arg-type]
        (TXN, pb.TxnRequest(compare=[compare], success=[
            pb.RequestOp(request_range=pb.RangeRequest(key=b"k", sort_target=9)),  # type: ignore[arg-type]
        ])),
    )  # fmt: skip
    for method, request in requests:
        with pytest.raises(aio.AioRpcError, match="is not known") as refused:
            await opened.raw(method, request)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not opened.server.fatal.done()
    await put(opened.client(), b"k", b"1")


async def test_a_fault_that_has_changed_nothing_ends_nothing(
    opened: OpenedEmbedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("nobody thought of it")

    monkeypatch.setattr(opened.server.machine, "_range", fail)
    with pytest.raises(aio.AioRpcError, match="the request failed") as refused:
        await opened.raw(RANGE, pb.RangeRequest(key=b"k"))
    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert not opened.server.fatal.done()


async def test_no_request_ends_it(opened: OpenedEmbedded) -> None:
    """Messages at random: each field a number or bytes that may mean nothing."""
    random = Random(7)
    unary: list[Method[Any, Any]] = [RANGE, PUT, TXN, *others_than_these()]
    async with aio.insecure_channel(opened.endpoint) as channel:
        for number in range(600):
            method = unary[number % len(unary)]
            data = at_random(random, method.request.DESCRIPTOR).SerializeToString()
            ask: Any = channel.unary_unary(method.path)
            with contextlib.suppress(aio.AioRpcError):
                await ask(data, timeout=20)
            assert not opened.server.fatal.done(), (method.path, data)
        for _ in range(60):
            call: Any = channel.stream_stream("/etcdserverpb.Watch/Watch")(timeout=20)
            request = at_random(random, pb.WatchRequest.DESCRIPTOR)
            with contextlib.suppress(aio.AioRpcError):
                await call.write(request.SerializeToString())
                await call.done_writing()
                async for _ in call:
                    pass
    await put(opened.client(), b"after", b"1")


def others_than_these() -> list[Method[Any, Any]]:
    found = [each for each in vars(methods).values() if isinstance(each, Method)]
    streams = (methods.WATCH, methods.LEASE_KEEP_ALIVE, RANGE, PUT, TXN)
    return [each for each in found if each not in streams]


def _repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # older releases have the label alone
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def at_random(random: Random, kind: Any, depth: int = 0) -> Any:
    """A message of this descriptor."""
    made = GetMessageClass(kind)()
    numbers = (0, 1, 2, 7, 99, -1, (1 << 31) - 1, -(1 << 31))
    for field in kind.fields:
        if random.random() < 0.4 or depth > 3:
            continue
        wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
        for _ in range(random.randrange(1, 3) if _repeated(field) else 1):
            value: Any
            if field.cpp_type == field.CPPTYPE_MESSAGE:
                value = at_random(random, field.message_type, depth + 1)
            elif field.cpp_type == field.CPPTYPE_STRING:
                text = random.choice((b"", b"\0", b"k", b"\xff"))
                value = text if field.type == field.TYPE_BYTES else "u"
            elif field.cpp_type == field.CPPTYPE_BOOL:
                value = random.random() < 0.5
            else:
                value = random.choice((*numbers, *(((1 << 63) - 1, -(1 << 63)) if wide else ())))
                value = value if field.cpp_type != field.CPPTYPE_UINT64 else abs(value)
            if _repeated(field):
                getattr(made, field.name).append(value)
            elif field.cpp_type == field.CPPTYPE_MESSAGE:
                getattr(made, field.name).CopyFrom(value)
            else:
                setattr(made, field.name, value)
    return made


async def test_watches_from_the_beginning_do_not_hold_up_a_renewal(tmp_path: Path) -> None:
    opened = OpenedEmbedded(tmp_path)
    await opened.server.start()
    machine = opened.server.machine
    for number in range(12_000):
        machine.put(pb.PutRequest(key=b"k%d" % (number % 50), value=b"v"), opened.clock.monotonic())
    machine.pop_changes()
    opened.server._durable.move(machine.revision)
    create = pb.WatchCreateRequest(key=b"nothing", range_end=b"o", start_revision=2)
    data = pb.WatchRequest(create_request=create).SerializeToString()
    loop, longest = asyncio.get_running_loop(), 0.0
    async with aio.insecure_channel(opened.endpoint) as channel:
        call: Any = channel.stream_stream("/etcdserverpb.Watch/Watch")(timeout=60)
        for _ in range(200):
            await call.write(data)
        for _ in range(200):
            began = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)
        assert longest < 1.0 * slowness()
        await opened.raw(STATUS, pb.StatusRequest())
        call.cancel()
    await opened.close()


async def test_a_watch_request_that_is_none_ends_its_stream_alone(opened: OpenedEmbedded) -> None:
    async with aio.insecure_channel(opened.endpoint) as channel:
        call: Any = channel.stream_stream("/etcdserverpb.Watch/Watch")(timeout=20)
        await call.write(b"\xff\xff\xff")
        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await put(opened.client(), b"k", b"1")


async def test_a_password_is_not_asked_for(opened: OpenedEmbedded) -> None:
    """Of a coordinator without users, as etcd's own clients do it."""
    options = CoordinatorOptions((opened.endpoint,), user="u", password="p", **PATIENT)  # type: ignore[arg-type]
    client = EtcdCoordinator(options)
    await put(client, b"k", b"1")
    await client.close()


async def test_status_and_limits_by_name(opened: OpenedEmbedded) -> None:
    client = opened.client()
    revision = await put(client, b"k", b"v")
    status = await opened.raw(STATUS, pb.StatusRequest())
    assert status.header.revision == revision
    assert status.leader == status.header.member_id
    assert status.dbSize > 0
    limit = Limits().value_bytes
    with pytest.raises(CoordinatorRefusedError, match=f"value: {limit + 1}, the limit is {limit}"):
        await put(client, b"k", bytes(limit + 1))


async def test_puts_are_refused_while_too_much_waits_for_the_disk(opened: OpenedEmbedded) -> None:
    client, hasty = opened.client(), opened.client(attempt_s=1.0, budget_s=1.0)
    await put(client, b"k", b"1")
    journal = opened.server._journal
    journal.waiting_bytes = Limits().waiting_bytes + 1
    with pytest.raises(CoordinatorUnavailableError, match="wait for the disk"):
        await put(hasty, b"k", b"2")
    assert await value_of(client, b"k") == b"1"
    journal.waiting_bytes = 0
    await put(client, b"k", b"3")


async def test_streams_above_the_limit_are_refused_and_counted_down(tmp_path: Path) -> None:
    opened = OpenedEmbedded(tmp_path, Limits(streams=3))
    await opened.server.start()
    progress = pb.WatchRequest(progress_request=pb.WatchProgressRequest()).SerializeToString()
    async with aio.insecure_channel(opened.endpoint) as channel:

        async def answer() -> tuple[Any, Any]:
            call: Any = channel.stream_stream("/etcdserverpb.Watch/Watch")(timeout=20)
            await call.write(progress)
            return call, await call.read()

        (first, _), (second, _) = await answer(), await answer()
        with pytest.raises(aio.AioRpcError, match="streams of one caller: 3, the limit is 2"):
            await answer()
        await first.done_writing()
        assert await first.code() is grpc.StatusCode.OK
        third, told = await answer()
        assert pb.WatchResponse.FromString(told).watch_id == -1
        for each in (second, third):
            each.cancel()
    await opened.close()


class BrokenDisk:
    """Every commit fails."""

    saved = EMPTY

    def commit(self, changes: Sequence[Changes]) -> None:
        raise OSError("the disk is gone")

    def size(self) -> int:
        return 0

    def close(self) -> None: ...


async def test_a_failed_commit_is_never_answered_and_ends_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    clock = FakeClock()
    server = CoordinatorServer(BrokenDisk(), endpoint, monotonic=clock.monotonic)
    await server.start()
    client = EtcdCoordinator(CoordinatorOptions((endpoint,), **PATIENT))  # type: ignore[arg-type]
    assert (await client.get(b"k")).kv is None
    with caplog.at_level(logging.CRITICAL):
        writing = asyncio.create_task(client.txn(Txn((), (Put(b"k", b"v"), Get(KeyRange(b"k"))))))
        error = await asyncio.wait_for(server.fatal, 20)
        assert isinstance(error, OSError)
        assert not writing.done()
        await server.stop()
    with pytest.raises(UnknownOutcomeError):
        await writing
    assert "commit failed" in caplog.text
    await client.close()


class StuckDisk(BrokenDisk):
    """No commit ever ends, until it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let = threading.Event()

    def commit(self, changes: Sequence[Changes]) -> None:
        self.begun.set()
        self.let.wait()


async def test_closing_a_client_ends_what_it_waits_for() -> None:
    """With the error that says what may have happened, not as a cancellation of whoever waits."""
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    disk = StuckDisk()
    server = CoordinatorServer(disk, endpoint, monotonic=FakeClock().monotonic)
    await server.start()
    client = EtcdCoordinator(CoordinatorOptions((endpoint,), **PATIENT))  # type: ignore[arg-type]
    assert (await client.get(b"k")).kv is None
    writing = asyncio.create_task(client.txn(Txn((), (Put(b"k", b"v"),))))
    assert await asyncio.to_thread(disk.begun.wait, 20)
    reading = asyncio.create_task(client.get(b"k"))
    renewing = asyncio.create_task(client.keep_alive(1))
    nowhere = EtcdCoordinator(CoordinatorOptions(("127.0.0.1:1",), **PATIENT))  # type: ignore[arg-type]
    connecting = asyncio.create_task(nowhere.get(b"k"))
    cancelled = asyncio.create_task(client.get(b"k"))
    for _ in range(20):
        await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait((cancelled,))
    assert cancelled.cancelled()
    await client.close()
    await nowhere.close()
    with pytest.raises(UnknownOutcomeError):
        await asyncio.wait_for(writing, 20)
    for task in (reading, renewing, connecting):
        with pytest.raises(CoordinatorUnavailableError):
            await asyncio.wait_for(task, 20)
    disk.let.set()
    await server.stop()
