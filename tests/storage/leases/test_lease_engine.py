"""The engine's rules one by one: late words of consumers, groups that go, bounds."""

from dataclasses import replace

import numpy as np
import pytest

from fakes.lease_world import Message, plain_batch
from tandemlog.format.lease.handle import decode_handles, encode_handles
from tandemlog.format.lease.policy import AckResult, Backoff, GroupPolicy, Ordering
from tandemlog.format.lease.progress import (
    Progress,
    QueueProgress,
    decode_progress,
    encode_progress,
)
from tandemlog_server.storage.leases.handle_operations import Found, Kind, Operation
from tandemlog_server.storage.leases.lease_engine import LeaseEngine
from tandemlog_server.storage.leases.lease_values import Leased, LeaseLimits, Now, Reading
from tandemlog_server.storage.leases.progress_table import ProgressTable
from tandemlog_server.storage.leases.queue_leases import QueueLeases

GROUP, TOPIC = "billing", "orders"
LEASE_MS = 100
PLAIN = GroupPolicy(3, Backoff((50,)))
IN_ORDER = replace(PLAIN, ordering=Ordering.QUEUE)
BY_KEY = replace(PLAIN, ordering=Ordering.KEY)


class Bench:
    """An engine and one queue, whose message n has key `keys[n]` and lies at log offset n."""

    def __init__(
        self,
        policy: GroupPolicy = PLAIN,
        count: int = 4,
        *,
        term: int = 1,
        said: QueueProgress | None = None,
        limits: LeaseLimits | None = None,
        keys: bytes = b"",
    ) -> None:
        self.engine = LeaseEngine(limits or LeaseLimits(grace_ms=0), term)
        self.ms = 1_000
        self.count = count
        self.keys = keys or bytes(count)
        self.open(policy, said)

    def open(self, policy: GroupPolicy, said: QueueProgress | None = None) -> None:
        self.engine.open_group(GROUP, policy)
        states = {} if said is None else {0: said}
        self.engine.open_topic(GROUP, TOPIC, [(0, self.count)], states, self.now)

    @property
    def now(self) -> Now:
        return Now(self.ms, 1_000_000 + self.ms)

    @property
    def queue(self) -> QueueLeases:
        queue = self.engine.groups.queue(GROUP, TOPIC, 0)
        assert queue is not None
        return queue

    def message(self, offset: int) -> Message:
        return Message(offset + 1, 0, offset, self.keys[offset])

    def begin(self, count: int) -> Reading | None:
        self.engine.tick(self.now)
        return self.engine.begin(GROUP, [TOPIC], count, "me", self.now)[0]

    def finish(self, reading: Reading) -> Leased | None:
        offsets = reading.again.tolist() or range(reading.start, reading.end)
        messages = [(each, self.message(each)) for each in offsets]
        batch = plain_batch(offsets[0], offsets[-1] + 1, messages, lambda _: True)
        return self.engine.finish(reading, batch, LEASE_MS, self.now)

    def receive(self, count: int = 10) -> bytes:
        """The handles of what there is."""
        reading = self.begin(count)
        leased = None if reading is None else self.finish(reading)
        return b"" if leased is None else leased.handles

    def send(self, handles: bytes, kind: Kind, ms: int | None = LEASE_MS) -> list[int]:
        operation = Operation(kind, ms)
        columns = decode_handles(handles)
        results, unread = self.engine.operate(GROUP, columns, operation, self.now)
        for part in unread:
            offsets = part.handles["queue_offset"]
            found = Found(
                offsets.astype(np.int64),
                (offsets + 1).astype(np.uint32),
                np.array([self.keys[each] for each in offsets.tolist()], np.uint32),
            )
            results[part.rows] = self.engine.operate_read(part, found, operation, self.now)
        return [int(each) for each in results]

    def tried(self) -> QueueProgress:
        """What the log says of it, read again."""
        news = [self.queue.collect()]
        return decode_progress(encode_progress(Progress(news))).entries[0]


def offsets(handles: bytes) -> list[int]:
    found: list[int] = decode_handles(handles)["queue_offset"].tolist()
    return found


OK, REFUSED = AckResult.OK, AckResult.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize("policy", [IN_ORDER, BY_KEY])
def test_more_time_that_comes_behind_a_failure_makes_no_dead_letter(policy: GroupPolicy) -> None:
    """The consumer's renewal was under way when it failed the first message: the second one, which
    it never tried, had 65,535 attempts after its lease."""
    bench = Bench(policy, 2, keys=b"aa")
    handles = bench.receive()
    assert bench.send(handles[:64], Kind.RETRY, 0) == [OK]
    assert bench.send(handles, Kind.EXTEND) == [REFUSED, REFUSED]
    bench.ms += 10 * LEASE_MS
    bench.engine.tick(bench.now)
    assert bench.engine.take_dead_letters(9) == []
    assert bench.queue.rows.attempts.tolist() == [1, 0]
    assert offsets(bench.receive()) == [0, 1]


def test_a_handle_that_says_zero_attempts_makes_no_dead_letter() -> None:
    first = Bench(IN_ORDER, 2)
    handles = decode_handles(first.receive()).copy()
    handles["attempt"] = 0
    bench = Bench(IN_ORDER, 2, term=2)
    assert bench.send(encode_handles(handles), Kind.EXTEND) == [OK, OK]
    bench.ms += 10 * LEASE_MS
    bench.engine.tick(bench.now)
    assert bench.engine.take_dead_letters(9) == []


def test_what_was_given_back_is_extended_no_more() -> None:
    bench = Bench()
    handles = bench.receive(2)
    assert bench.send(handles[:64], Kind.RELEASE) == [OK]
    assert bench.send(handles[64:], Kind.RETRY, 50) == [OK]
    assert bench.send(handles, Kind.EXTEND) == [REFUSED, REFUSED]
    bench.ms += 50
    assert offsets(bench.receive(2)) == [0, 1]


def test_a_lease_that_ended_is_extended_while_no_one_has_the_message() -> None:
    bench = Bench(count=1)
    handles = bench.receive()
    bench.ms += 2 * LEASE_MS
    bench.engine.tick(bench.now)
    assert bench.send(handles, Kind.EXTEND) == [OK]
    assert bench.receive() == b""


@pytest.mark.parametrize("kind", [Kind.EXTEND, Kind.RETRY, Kind.RELEASE, Kind.REJECT])
def test_a_consumer_of_an_earlier_master_takes_no_message_from_another_one(kind: Kind) -> None:
    old = Bench(count=1)
    mine = old.receive()
    bench = Bench(count=1, term=2, said=old.tried())
    others = bench.receive()
    assert offsets(others) == [0]
    assert bench.send(mine, kind) == [REFUSED]
    assert bench.send(others, Kind.ACK) == [OK]


def test_its_acknowledgement_counts() -> None:
    """The work is done."""
    old = Bench(count=1)
    mine = old.receive()
    bench = Bench(count=1, term=2, said=old.tried())
    bench.receive()
    assert bench.send(mine, Kind.ACK) == [OK]


@pytest.mark.parametrize("policy", [IN_ORDER, BY_KEY])
def test_a_consumer_of_an_earlier_master_keeps_nothing_behind_what_another_one_has(
    policy: GroupPolicy,
) -> None:
    old = Bench(policy, 2, keys=b"aa")
    mine = old.receive()
    bench = Bench(policy, 2, term=2, keys=b"aa")
    assert offsets(bench.receive(1)) == [0]
    assert bench.send(mine, Kind.EXTEND) == [REFUSED, REFUSED]


def test_its_messages_that_turn_up_while_others_are_read_keep_their_order() -> None:
    """Message 1 of key a is with a consumer of the last master, which says so while 0..3 are read:
    message 3 of key a has to wait."""
    old = Bench(BY_KEY, keys=b"baca")
    mine = old.receive()[64:128]
    bench = Bench(BY_KEY, term=2, keys=b"baca")
    reading = bench.begin(10)
    assert reading is not None
    assert bench.send(mine, Kind.EXTEND) == [OK]
    leased = bench.finish(reading)
    assert leased is not None
    assert offsets(leased.handles) == [0, 2]
    assert bench.send(mine, Kind.ACK) == [OK]
    assert offsets(bench.receive()) == [3]


def test_numbers_of_deliveries_differ_between_masters() -> None:
    first, second = Bench(term=1), Bench(term=2)
    numbers = {int(decode_handles(each.receive())["lease"][0]) for each in (first, second)}
    assert len(numbers) == 2


def test_a_group_that_is_forgotten_while_its_dead_letters_are_stored_is_counted_once() -> None:
    bench = Bench(count=2)
    bench.send(bench.receive(), Kind.REJECT)
    [letters] = bench.engine.take_dead_letters(9)
    bench.engine.forget(GROUP)
    bench.engine.buried(letters)
    assert bench.engine.owners.shares.held == 0
    assert bench.engine.counters.dead_letters == 2


def test_a_forgotten_queue_that_could_not_be_read_has_no_dead_letters() -> None:
    bench = Bench(replace(PLAIN, max_attempts=1))
    bench.receive(1)
    reading = bench.begin(1)
    assert reading is not None
    bench.engine.forget(GROUP)
    bench.engine.abandon(reading, bench.now, 10)
    bench.ms += 10 * LEASE_MS
    bench.engine.tick(bench.now)
    assert bench.engine.take_dead_letters(9) == []
    assert bench.engine.counters.expired == 0


def test_a_group_that_is_forgotten_leaves_what_is_new() -> None:
    bench = Bench()
    bench.send(bench.receive(2)[:64], Kind.ACK)
    [news] = bench.engine.forget(GROUP)
    assert (news.ended_starts.tolist(), news.ended_ends.tolist()) == ([0], [1])
    assert news.offsets.tolist() == [1]
    assert not bench.engine.has_news


def test_news_of_a_forgotten_group_that_were_not_stored_come_back_to_the_caller() -> None:
    bench = Bench()
    bench.send(bench.receive(), Kind.ACK)
    news = bench.engine.collect()
    bench.engine.forget(GROUP)
    assert bench.engine.put_back(news) == news


def test_dead_letters_that_cannot_be_stored_let_others_go_first() -> None:
    bench = Bench(count=2)
    bench.engine.open_topic(GROUP, "bills", [(0, 1)], {}, bench.now)
    bench.send(bench.receive(), Kind.REJECT)
    [stuck] = bench.engine.take_dead_letters(1)
    other = bench.engine.groups.queue(GROUP, "bills", 0)
    assert other is not None
    bench.engine._giving_up[other] = None
    bench.engine.not_buried(stuck)
    assert next(iter(bench.engine._giving_up)) is other


def test_errors_of_one_record_are_bounded() -> None:
    """The record counts them in 16 bits."""
    count = 70_000
    bench = Bench(count=count, limits=LeaseLimits(count, 2 * count, 0))
    handles = bench.receive(count)
    operation = Operation(Kind.RETRY, 0, "out of paper")
    bench.engine.operate(GROUP, decode_handles(handles), operation, bench.now)
    said = bench.tried()
    assert len(said.offsets) == count
    assert (len(said.errors), max(said.errors)) == (1_000, count - 1)


def test_acknowledgements_of_what_was_never_delivered_are_bounded() -> None:
    """Whoever can read the messages can write their handles: every second one would cost memory
    for ever."""
    full = Bench(count=100, limits=LeaseLimits(100, 1_000, 0))
    handles = full.receive(100)
    bench = Bench(count=100, term=2, limits=LeaseLimits(8, 1_000, 0))
    results = [
        bench.send(handles[64 * each : 64 * each + 64], Kind.ACK)[0] for each in range(1, 99, 2)
    ]
    assert results.count(OK) == len(bench.queue.ended) == 8


def test_a_message_that_is_set_aside_comes_later_and_is_not_in_the_log() -> None:
    bench = Bench(count=3)
    reading = bench.begin(10)
    assert reading is not None
    bench.engine.set_aside(reading, bench.now, 1_000)
    assert offsets(bench.receive()) == [1, 2]
    assert bench.tried().offsets.tolist() == [1, 2]
    bench.ms += 50
    assert bench.receive() == b""
    bench.ms = 2_000
    assert offsets(bench.receive()) == [0, 1, 2]


def test_a_message_that_was_acknowledged_is_not_set_aside() -> None:
    old = Bench(count=1)
    handles = old.receive()
    bench = Bench(count=1, term=2)
    reading = bench.begin(1)
    assert reading is not None
    assert bench.send(handles, Kind.ACK) == [OK]
    bench.engine.set_aside(reading, bench.now, 1_000)
    assert bench.queue.rows.live == 0
    assert bench.queue.left == 0


@pytest.mark.parametrize("policy", [IN_ORDER, BY_KEY])
def test_those_behind_a_released_message_come_back_with_it(policy: GroupPolicy) -> None:
    """Else it would wait for the end of their lease, which would count as their attempt."""
    bench = Bench(replace(policy, max_attempts=1), 3, keys=b"aab")
    handles = bench.receive()
    expected = [0, 1] if policy is BY_KEY else [0, 1, 2]
    assert bench.send(handles[:64], Kind.RELEASE) == [OK]
    again = bench.receive()
    assert offsets(again) == expected
    assert decode_handles(again)["attempt"].tolist() == [1] * len(expected)


ALL_BITS = 0x7FFF_FFFF


def again(bench: Bench, offsets: list[int], delivery: int) -> list[bytes]:
    return bench.engine.handles_again((GROUP, TOPIC, 0), offsets, delivery, ALL_BITS)


def delivery_of(handles: bytes) -> int:
    return int(decode_handles(handles)["lease"][0]) & ALL_BITS


def test_a_message_is_found_again_by_the_number_of_its_delivery() -> None:
    bench = Bench()
    handles = bench.receive(2)
    delivery = delivery_of(handles)
    assert again(bench, [1, 0, 2], delivery) == [handles[64:], handles[:64], b""]
    assert again(bench, [0], delivery + 1) == [b""]
    assert bench.engine.handles_again((GROUP, TOPIC, 9), [0], delivery, ALL_BITS) == [b""]
    assert bench.engine.handles_again(("none", TOPIC, 0), [0], delivery, ALL_BITS) == [b""]
    assert bench.send(handles[:64], Kind.ACK) == [OK]
    assert again(bench, [0, 1], delivery) == [b"", handles[64:]]


def test_a_delivery_that_another_one_has_followed_finds_nothing() -> None:
    bench = Bench(count=1)
    first = bench.receive()
    bench.ms += LEASE_MS
    assert offsets(again(bench, [0], delivery_of(first))[0]) == [0]
    second = bench.receive()
    assert again(bench, [0], delivery_of(first)) == [b""]
    assert again(bench, [0], delivery_of(second)) == [second]


def test_what_was_given_back_or_is_only_told_of_by_the_log_is_of_no_delivery() -> None:
    bench = Bench(count=1)
    handles = bench.receive()
    told = bench.tried()
    assert bench.send(handles, Kind.RELEASE) == [OK]
    assert again(bench, [0], 0) == [b""]
    assert again(Bench(count=1, said=told), [0], 0) == [b""]


@pytest.mark.parametrize(
    ("begins", "found"),
    [({0: 3}, [3]), ({0: 9}, []), ({0: -1}, [0, 1, 2, 3]), ({1: 3}, [0, 1, 2, 3])],
)
def test_a_group_begins_where_others_have_committed(
    begins: dict[int, int], found: list[int]
) -> None:
    engine = LeaseEngine(LeaseLimits(grace_ms=0), 1)
    engine.open_group(GROUP, PLAIN)
    engine.open_topic(GROUP, TOPIC, [(0, 4)], {}, Now(0, 0), begins)
    engine.confirmed(engine.collect(1 << 20))
    reading, _ = engine.begin(GROUP, [TOPIC], 10, "me", Now(0, 0))
    assert list(range(reading.start, reading.end) if reading else ()) == found


def test_an_offset_that_others_have_committed_later_moves_a_group_on() -> None:
    bench = Bench()
    bench.receive(2)
    told = bench.tried()
    engine = LeaseEngine(LeaseLimits(grace_ms=0), 2)
    engine.open_group(GROUP, PLAIN)
    engine.open_topic(GROUP, TOPIC, [(0, 4)], {0: told}, Now(0, 0), {0: 3})
    queue = engine.groups.queue(GROUP, TOPIC, 0)
    assert queue is not None
    assert (queue.floor, queue.rows.live) == (3, 0)


def log_says(bench: Bench) -> None:
    """A progress record is written and confirmed."""
    bench.engine.confirmed(bench.engine.collect())


@pytest.mark.parametrize("policy", [PLAIN, IN_ORDER])
def test_a_queue_begins_again_where_it_was_set_once_the_log_says_so(policy: GroupPolicy) -> None:
    bench = Bench(policy)
    old = bench.receive()
    bench.send(old[: len(old) // 4], Kind.ACK)
    bench.engine.begin_again(bench.queue, 1)
    assert bench.receive() == b""
    log_says(bench)
    assert offsets(bench.receive()) == [1, 2, 3]
    # leased by this master before it began again: nobody has it by that handle
    assert bench.send(old, Kind.ACK)[1:] == [REFUSED] * 3
    other = Bench(policy, 3)
    other.receive()
    # what was leased before takes no room
    assert bench.engine.owners.room("me") == other.engine.owners.room("me")


def test_the_log_forgets_what_was_done_before_a_queue_began_again() -> None:
    bench = Bench()
    bench.send(bench.receive(), Kind.ACK)
    before = bench.tried()
    bench.engine.begin_again(bench.queue, 2)
    table = ProgressTable()
    after = bench.engine.collect()
    for number, entries in enumerate(([before], after, [before])):
        table.apply(Progress(entries), number)
    [said] = table.of_group(GROUP)
    assert (said.floor, said.generation) == (2, 1)
    next_one = Bench(said=said, term=2)
    assert offsets(next_one.receive()) == [2, 3]
    next_one.engine.begin_again(next_one.queue, 0)
    log_says(next_one)
    assert offsets(next_one.receive()) == [0, 1, 2, 3]


def test_news_from_before_a_queue_began_again_neither_begin_it_nor_come_back() -> None:
    bench = Bench()
    bench.send(bench.receive(), Kind.ACK)
    before = bench.engine.collect()
    bench.engine.begin_again(bench.queue, 0)
    bench.engine.confirmed([replace(each, floor=0) for each in before])
    assert bench.receive() == b""
    assert bench.engine.put_back(before) == before
    log_says(bench)
    assert offsets(bench.receive()) == [0, 1, 2, 3]


def test_what_is_read_while_a_queue_begins_again_is_no_ones() -> None:
    bench = Bench()
    reading = bench.begin(2)
    assert reading is not None
    bench.engine.begin_again(bench.queue, 3)
    log_says(bench)
    assert bench.finish(reading) is None
    assert offsets(bench.receive()) == [3]
    assert bench.begin(1) is None
