"""A client's second attempt at a send is answered with what its first one has stored."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog.format.constants import UNIQ_KEY
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.record.record import Record
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.door.remoting_call import RemotingRefusedError
from tandemlog_server.node.remoting.sends import second_attempts
from tandemlog_server.node.remoting.sends.repeated_sends import unique_key
from tandemlog_server.node.remoting.sends.second_attempts import (
    ATTEMPTS_MS,
    WINDOW_S,
    SecondAttempts,
    Sent,
    queue_of,
)
from tandemlog_server.node.roles.role import CurrentRole, NodeRole
from tandemlog_server.rocketmq.clients.send_requests import SendRequest

BORN = 1_700_000_000_000
"""Of all records here."""


class Term(NodeRole):
    def epoch(self) -> int | None:
        return 3

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, ""

    def no_master(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(common_pb2.NOT_MASTER, what)

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return []

    def put_fault(self) -> str:
        return ""

    def read_fault(self) -> str:
        return ""


def attempt(
    *, body: bytes = b"one", key: str = "K1", topic: str = "T", later_ms: int = 40, more: str = ""
) -> SendRequest:
    """The second one, at another queue; `more` are properties."""
    properties = f"{UNIQ_KEY}\x01{key}\x02{more}" if key else more
    return SendRequest(
        "g", topic, "TBW102", 4, 3, 0, BORN + later_ms, 0, properties, 0, None, False, body
    )


@dataclass
class Elected:
    """A master whose term has begun behind the copies that the one before has stored."""

    bench: Bench = field(default_factory=lambda: Bench(topics=("T", "SCHEDULE_TOPIC_XXXX")))
    now: float = 0.0

    def __post_init__(self) -> None:
        self.current = CurrentRole(Term())
        self.attempts = SecondAttempts(self.bench.store, self.current, lambda: self.now)

    def put(
        self, body: bytes = b"one", *, topic: str = "T", queue_id: int = 1, key: str = "K1"
    ) -> None:
        waits = "" if topic == "T" else "REAL_TOPIC\x01T\x02REAL_QID\x012\x02DELAY\x011\x02"
        properties = f"{UNIQ_KEY}\x01{key}\x02{waits}".encode()
        self.bench.store.put(batch_of([Put(topic, queue_id, body, properties)]))

    def begin_term(self, *, settled: bool = True) -> None:
        if settled:
            self.bench.settle()
        store = self.bench.store
        last = store.epochs.table.last
        store.epochs.append(EpochEntry((last.epoch if last else 0) + 1, store.log.wrote.value))
        self.current.set(Term())

    async def found(self, request: SendRequest) -> int | None:
        """The place of the first copy in the log."""
        found = await self.records(request)
        return found[0].physical_offset if found else None

    async def records(self, request: SendRequest, *sent: Sent) -> Sequence[Record]:
        """`sent`: the messages of a batch."""
        one = Sent(unique_key(request.properties), request.body)
        return await self.attempts.first_copies(request, sent or [one], 0.0)


async def test_the_second_attempt_finds_the_first_copy() -> None:
    elected = Elected()
    elected.put()
    elected.begin_term()
    (record,) = await elected.records(attempt())
    assert (record.physical_offset, record.queue_offset, queue_of(record)) == (0, 0, 1)
    assert elected.attempts.found_total == 1


async def test_a_message_that_waits_elsewhere_is_found_too() -> None:
    elected = Elected()
    elected.put(topic="SCHEDULE_TOPIC_XXXX", queue_id=0)
    elected.begin_term()
    assert await elected.found(attempt()) is None
    (record,) = await elected.records(attempt(more="DELAY\x011\x02"))
    assert queue_of(record) == 2


async def test_a_batch_is_found_if_all_of_it_is_there() -> None:
    elected = Elected()
    sent = [Sent(f"K{number}", b"%d" % number) for number in range(3)]
    for each in sent:
        elected.put(each.body, key=each.key)
    elected.begin_term()
    batch = attempt()._replace(batch=True)
    longer = [*sent, Sent("K3", b"3")]
    other = [*sent[:2], Sent("K2", b"other")]
    assert [len(await elected.records(batch, *some)) for some in (longer, other)] == [0, 0]
    assert [each.body for each in await elected.records(batch, *sent)] == [b"0", b"1", b"2"]
    elected.put(b"3", key="K3")  # in this term
    elected.bench.settle()
    assert not await elected.records(batch, *longer)


async def test_what_is_no_attempt_at_the_same_send() -> None:
    elected = Elected()
    elected.put()
    elected.begin_term()
    for other in (
        attempt(body=b"two"),
        attempt(key="K2"),
        attempt(key=""),
        attempt(topic="U"),
        attempt(later_ms=-1),
        attempt(later_ms=ATTEMPTS_MS + 1),
    ):
        assert await elected.found(other) is None
    assert await elected.found(attempt(later_ms=ATTEMPTS_MS)) == 0


async def test_what_this_term_has_stored_is_no_first_copy() -> None:
    """A program may send one object as often as it likes, and that is told apart in no other
    way."""
    elected = Elected()
    elected.begin_term()
    elected.put()
    elected.bench.settle()
    assert await elected.found(attempt()) is None


async def test_an_object_that_is_sent_again_and_again_is_taken_for_an_attempt_once() -> None:
    elected = Elected()
    elected.put()
    elected.put()
    newest = elected.bench.store.log.wrote.value // 2
    elected.begin_term()
    assert await elected.found(attempt(later_ms=10)) == newest
    assert await elected.found(attempt(later_ms=10)) == newest  # that attempt, handed on twice
    assert await elected.found(attempt(later_ms=20)) is None
    elected.begin_term()
    assert await elected.found(attempt(later_ms=30)) == newest


async def test_nothing_is_looked_for_later_in_a_term() -> None:
    elected = Elected()
    elected.put()
    elected.begin_term()
    assert await elected.found(attempt(key="K2")) is None
    elected.now = WINDOW_S + 0.1
    assert await elected.found(attempt()) is None


async def test_sends_wait_until_the_last_masters_log_is_dispatched() -> None:
    elected = Elected()
    elected.put()
    elected.begin_term(settled=False)
    waiting = [asyncio.ensure_future(elected.found(attempt(key=key))) for key in ("K1", "K2")]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    elected.bench.settle()
    assert await asyncio.gather(*waiting) == [0, None]


async def test_a_log_that_is_not_dispatched_in_time_may_have_a_first_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(second_attempts, "WAIT_S", 0.01)
    elected = Elected()
    elected.put()
    elected.begin_term(settled=False)
    with pytest.raises(RemotingRefusedError, match="a first copy of the message may") as refused:
        await elected.found(attempt())
    assert refused.value.code == 14


async def test_who_waits_is_handed_on_when_the_term_ends() -> None:
    elected = Elected()
    elected.put()
    elected.begin_term(settled=False)
    waiting = asyncio.ensure_future(elected.found(attempt()))
    await asyncio.sleep(0)
    elected.current.set(Term())
    with pytest.raises(RequestRefusedError) as refused:
        await waiting
    assert refused.value.code == common_pb2.NOT_MASTER
