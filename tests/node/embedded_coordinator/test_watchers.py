"""A watch is a position in the history: each event once, in order, nothing that is not durable."""

import pytest

from fakes.coordinator_machines import delete, new_machine, put, txn
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.node.embedded_coordinator.state_machine import StateMachine
from tandemlog_server.node.embedded_coordinator.watchers import MESSAGE_BYTES, PIECE_ROWS, Watchers
from tandemlog_server.storage.shares import Shares


def create(key: bytes, end: bytes = b"", start: int = 0, **more: object) -> pb.WatchRequest:
    asked = pb.WatchCreateRequest(key=key, range_end=end, start_revision=start, **more)  # type: ignore[arg-type]
    return pb.WatchRequest(create_request=asked)


def watching(machine: StateMachine, limit: int = 9) -> Watchers:
    return Watchers(machine, Shares(limit))


def told(watchers: Watchers, durable: int) -> list[tuple[int, bytes, int]]:
    return [
        (answer.watch_id, event.kv.key, event.kv.mod_revision)
        for answer in watchers.due(durable)
        if answer is not None
        for event in answer.events
    ]


def answers_of(watchers: Watchers, durable: int) -> list[pb.WatchResponse]:
    """All that is due; none of the turns has nothing to say."""
    found = list(watchers.due(durable))
    assert None not in found
    return [each for each in found if each is not None]


def test_events_from_a_revision_on_and_each_once() -> None:
    machine = new_machine()
    for key in (b"a", b"x", b"b"):
        machine.txn(txn(put(key)), 0.0)
    watchers = watching(machine)
    answer = watchers.handle(create(b"a", b"c", start=3), 4)
    assert answer is not None
    assert answer.created
    assert told(watchers, 4) == [(0, b"b", 4)]
    assert told(watchers, 4) == []
    machine.txn(txn(delete(b"a"), put(b"b")), 0.0)
    assert told(watchers, 5) == [(0, b"a", 5), (0, b"b", 5)]


def test_nothing_is_told_before_it_is_durable() -> None:
    machine = new_machine()
    watchers = watching(machine)
    watchers.handle(create(b"a"), machine.revision)
    machine.txn(txn(put(b"a")), 0.0)
    assert told(watchers, 1) == []
    assert told(watchers, 2) == [(0, b"a", 2)]


def test_from_now_on_and_from_a_revision_to_come() -> None:
    machine = new_machine()
    machine.txn(txn(put(b"a")), 0.0)
    watchers = watching(machine)
    watchers.handle(create(b"a"), 2)
    watchers.handle(create(b"a", start=4), 2)
    for _ in range(2):
        machine.txn(txn(put(b"a")), 0.0)
    assert told(watchers, 4) == [(0, b"a", 3), (0, b"a", 4), (1, b"a", 4)]


def test_a_watch_behind_a_compaction_is_cancelled() -> None:
    machine = new_machine()
    for _ in range(5):
        machine.txn(txn(put(b"a")), 0.0)
    machine.compact(pb.CompactionRequest(revision=4), 0.0)
    watchers = watching(machine)
    watchers.handle(create(b"a", start=3), 6)
    watchers.handle(create(b"a", start=5), 6)
    answers = answers_of(watchers, 6)
    assert (answers[0].canceled, answers[0].compact_revision) == (True, 4)
    assert [event.kv.mod_revision for event in answers[1].events] == [5, 6]
    assert list(watchers.due(6)) == []


def test_messages_end_between_revisions() -> None:
    machine = new_machine()
    value = b"v" * (MESSAGE_BYTES // 2)
    for _ in range(3):
        machine.txn(txn(put(b"a", value), put(b"b", value), put(b"c")), 0.0)
    watchers = watching(machine)
    watchers.handle(create(b"a", b"z", start=2), 4)
    revisions = [
        [event.kv.mod_revision for event in each.events] for each in answers_of(watchers, 4)
    ]
    assert revisions == [[2, 2, 2], [3, 3, 3], [4, 4, 4]]


def test_filters_and_previous_values() -> None:
    machine = new_machine()
    machine.txn(txn(put(b"a", b"1")), 0.0)
    machine.txn(txn(delete(b"a")), 0.0)
    watchers = watching(machine)
    noput = pb.WatchCreateRequest.NOPUT
    watchers.handle(create(b"a", start=1, filters=[noput], prev_kv=True), 3)
    (answer,) = answers_of(watchers, 3)
    (event,) = answer.events
    assert event.type == pb.Event.DELETE
    assert event.prev_kv.value == b"1"


def test_cancel_and_progress() -> None:
    machine = new_machine()
    watchers = watching(machine)
    watchers.handle(create(b"a", watch_id=5), 1)
    progress = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
    answer = watchers.handle(progress, 1)
    assert answer is not None
    assert (answer.watch_id, answer.header.revision) == (-1, 1)
    cancel = pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=5))
    answer = watchers.handle(cancel, 1)
    assert answer is not None
    assert answer.canceled
    machine.txn(txn(put(b"a")), 0.0)
    assert told(watchers, 2) == []
    assert watchers.handle(cancel, 2) is None


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (create(b""), "key is not provided"),
        (create(b"a", watch_id=3), "duplicate ID"),
        (create(b"a", progress_notify=True), "progress_notify"),
    ],
)
def test_refused_watches(request_: pb.WatchRequest, named: str) -> None:
    watchers = watching(new_machine())
    watchers.handle(create(b"a", watch_id=3), 1)
    answer = watchers.handle(request_, 1)
    assert answer is not None
    assert answer.canceled
    assert named in answer.cancel_reason


def test_the_limit_is_the_coordinators_and_given_back() -> None:
    machine, count = new_machine(), Shares(3)  # of which one caller has two
    first, second = Watchers(machine, count), Watchers(machine, count)
    for _ in range(2):
        first.handle(create(b"a"), 1)
    answer = second.handle(create(b"a"), 1)
    assert answer is not None
    assert "watches of one caller: 3, the limit is 2" in answer.cancel_reason
    first.close()
    answer = second.handle(create(b"a"), 1)
    assert answer is not None
    assert not answer.canceled


def test_a_long_history_is_gone_through_in_pieces() -> None:
    machine = new_machine()
    for number in range(3 * PIECE_ROWS):
        machine.put(pb.PutRequest(key=b"k%d" % (number % 7), value=b"v"), 0.0)
    machine.put(pb.PutRequest(key=b"wanted", value=b"v"), 0.0)
    watchers = watching(machine)
    watchers.handle(create(b"wanted", start=2), machine.revision)
    pieces = list(watchers.due(machine.revision))
    assert pieces[:3] == [None, None, None]
    assert pieces[3] is not None
    assert [event.kv.key for event in pieces[3].events] == [b"wanted"]


def test_one_caller_leaves_watches_to_another() -> None:
    machine, shares = new_machine(), Shares(8)
    greedy, modest = Watchers(machine, shares, "a"), Watchers(machine, shares, "b")
    answers = [greedy.handle(create(b"a"), 1) for _ in range(8)]
    assert sum(answer is not None and not answer.canceled for answer in answers) == 6
    answer = modest.handle(create(b"a"), 1)
    assert answer is not None
    assert not answer.canceled
