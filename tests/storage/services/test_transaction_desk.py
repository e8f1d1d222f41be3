"""A master with transactions: each has one outcome, whatever happens between its records."""

from dataclasses import replace

import pytest

from fakes.batches import Put, batch_of
from fakes.halves import finished, half_put, put_halves, ready_desk
from fakes.stores import CONFIG, Bench, records_of
from tandemlog.format.constants import (
    BROKER_TRANSACTIONS,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    PRODUCER_MARK,
    SERVICE_TOPIC,
    UNDECIDED_TOPIC,
)
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.record.record import Record
from tandemlog.format.transaction.decision import NO_OFFSET, Commit, GroupOffset, said_by
from tandemlog.format.transaction.half import ended_halves
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.services.transaction_desk import EndRequest, TransactionDesk
from tandemlog_server.storage.services.transaction_errors import (
    HalvesUnreadableError,
    TransactionDecidedError,
    TransactionsNotReadyError,
    UnknownTransactionError,
)

TX = EndRequest("tx")


def bench_of(**settings: object) -> Bench:
    config = replace(CONFIG, commit_log_file_size=1 << 19, queue_file_size=20 * 1000)
    return Bench(replace(config, **settings), topics=("T", "U"))  # type: ignore[arg-type]


def stored(bench: Bench, topic: str = "T", queue_id: int = 0) -> list[Record]:
    return records_of(bench.store.reader.get(topic, queue_id, 0, 0, 1 << 20))


def test_nothing_of_an_open_transaction_is_read() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"), half_put("b", topic="U"))
    ready_desk(bench)
    assert bench.bodies("T") == bench.bodies("U") == []
    assert len(bench.store.transactions.halves) == 2


def test_a_commit_of_several_messages() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"), half_put("b", topic="U", queue_id=2), half_put("x", "other"))
    desk = ready_desk(bench)
    ended = desk.commit(EndRequest("tx", count=2))
    assert (ended.committed, ended.again) == (True, False)
    assert ended.end_offset == bench.store.log.wrote.value
    bench.settle()
    (first,), (second,) = stored(bench, "T"), stored(bench, "U", 2)
    assert (first.body, second.body) == (b"a", b"b")
    assert [(each.topic, each.queue_id, each.queue_offset) for each in ended.messages] == [
        ("T", 0, 0), ("U", 2, 0),
    ]  # fmt: skip
    assert [each.physical_offset for each in ended.messages] == [
        first.physical_offset, second.physical_offset,
    ]  # fmt: skip
    (decision,) = stored(bench, SERVICE_TOPIC)
    halves = stored(bench, HALF_TOPIC)
    assert said_by(decision) == Commit("tx", tuple(each.physical_offset for each in halves[:2]))
    assert decision.physical_offset < first.physical_offset
    (op,) = stored(bench, OP_HALF_TOPIC)
    assert ended_halves(op) == [0, 1]
    assert list(bench.store.transactions.halves) == [halves[2].physical_offset]


def test_a_transaction_of_one_message_needs_no_other_decision() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"))
    desk = ready_desk(bench)
    desk.commit(TX)
    bench.settle()
    assert bench.bodies() == [b"a"]
    assert stored(bench, SERVICE_TOPIC) == []
    (record,) = stored(bench)
    assert record.prepared_transaction_offset == -1, "its half is the first record of the log"
    assert record.sys_flag & 0xC == 8


def test_a_rollback_is_one_record() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"), half_put("b"))
    desk = ready_desk(bench)
    assert desk.roll_back(TX).committed is False
    finished(bench, desk)
    assert bench.bodies() == []
    (op,) = stored(bench, OP_HALF_TOPIC)
    assert ended_halves(op) == [0, 1]
    assert not bench.store.transactions.halves


@pytest.mark.parametrize("dispatched", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_second_request_gets_the_first_outcome(*, commits: bool, dispatched: bool) -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"), half_put("b"))
    desk = ready_desk(bench)
    same, other = (desk.commit, desk.roll_back) if commits else (desk.roll_back, desk.commit)
    first = same(TX)
    if dispatched:
        bench.settle()
    again = same(EndRequest("tx", count=2))
    assert (again.committed, again.again) == (commits, True)
    assert again.end_offset == (0 if dispatched else first.end_offset)
    with pytest.raises(TransactionDecidedError, match="committed" if commits else "rolled back"):
        other(TX)
    finished(bench, desk)
    assert bench.bodies() == ([b"a", b"b"] if commits else [])


def test_the_outcome_survives_a_restart() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"), half_put("b", "other"))
    desk = ready_desk(bench)
    desk.commit(TX)
    desk.roll_back(EndRequest("other"))
    bench.settle()
    bench.reopen()
    desk = ready_desk(bench)
    assert desk.commit(TX).again
    assert desk.roll_back(EndRequest("other")).again
    with pytest.raises(TransactionDecidedError):
        desk.roll_back(TX)
    assert bench.bodies() == [b"a"]


def test_a_commit_of_less_than_was_sent_is_refused() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"))
    desk = ready_desk(bench)
    with pytest.raises(UnknownTransactionError, match="2 messages by its sender, and 1 here"):
        desk.commit(EndRequest("tx", count=2))
    with pytest.raises(UnknownTransactionError, match="never begun here"):
        desk.commit(EndRequest("unknown", count=1))
    assert desk.commit(EndRequest("tx", count=1)).committed


def test_a_transaction_that_is_not_known_is_rolled_back_without_a_record() -> None:
    bench = bench_of()
    desk = ready_desk(bench)
    end = bench.store.log.wrote.value
    assert desk.roll_back(EndRequest("unknown")).end_offset == 0
    assert bench.store.log.wrote.value == end


def test_nothing_is_decided_before_the_log_of_the_last_master_is_dispatched() -> None:
    bench = bench_of(confirm=ConfirmSource.REPLICATION)
    store = bench.store
    store.become_master(1)
    put_halves(bench, half_put("a"))
    desk = TransactionDesk(store)
    desk.begin()
    for decide in (desk.commit, desk.roll_back):
        with pytest.raises(TransactionsNotReadyError):
            decide(TX)
    assert desk.finish() == 0
    store.flush()
    store.confirmed.advance(store.log.wrote.value)
    store.reput.run_to()
    assert desk.commit(TX).committed


def test_an_unconfirmed_commit_of_the_last_term_is_open_again_when_it_is_cut() -> None:
    bench = bench_of(confirm=ConfirmSource.REPLICATION)
    store = bench.store
    store.become_master(1)
    put_halves(bench, half_put("a"))
    confirmed = store.log.wrote.value
    desk = TransactionDesk(store)
    desk.begin()
    store.flush()
    store.confirmed.advance(confirmed)
    store.reput.run_to()
    desk.commit(TX)
    desk.end()
    store.become_slave()
    store.truncate(confirmed)
    store.become_master(2)
    desk.begin()
    store.reput.run_to()
    assert not desk.roll_back(TX).committed
    store.flush()
    store.confirmed.advance(store.log.wrote.value)
    store.reput.run_to()
    assert bench.bodies() == []


def torn(bench: Bench, keep: int) -> None:
    """The power goes; of the last append the first `keep` records are on the disk."""
    store = bench.store
    bench.settle()
    records = sorted(
        record.physical_offset
        for topic, queue_id in ((SERVICE_TOPIC, 0), ("T", 0), ("U", 0), (OP_HALF_TOPIC, 0))
        for record in stored(bench, topic, queue_id)
    )
    store.truncate(records[keep])


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_what_was_torn_off_behind_the_decision_is_written_later(keep: int) -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"), half_put("b", topic="U"))
    desk = ready_desk(bench)
    desk.commit(TX)
    torn(bench, keep)
    bench.reopen()
    desk = ready_desk(bench)
    assert desk.commit(TX).again
    with pytest.raises(TransactionDecidedError):
        desk.roll_back(TX)
    finished(bench, desk)
    assert (bench.bodies("T"), bench.bodies("U")) == ([b"a"], [b"b"])
    assert not bench.store.transactions.halves
    assert {n for op in stored(bench, OP_HALF_TOPIC) for n in ended_halves(op)} == {0, 1}


def test_what_one_append_does_not_take_follows_in_others() -> None:
    bench = bench_of(max_batch_size=(256 << 10) + 2_000)
    names = [f"{number:03d}" for number in range(40)]
    for name in names:
        put_halves(bench, half_put(name, queue_id=int(name) % 4))
    desk = ready_desk(bench)
    ended = desk.commit(EndRequest("tx", count=40))
    assert 0 < len(ended.messages) < 40
    finished(bench, desk)
    found = sorted(body for queue in range(4) for body in bench.bodies("T", queue))
    assert found == [name.encode() for name in names]
    assert not bench.store.transactions.halves
    assert desk.counts.finished == 40, "the OP records of the first ones too"


def test_a_half_that_comes_too_late_is_rolled_back() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"))
    desk = ready_desk(bench)
    put_halves(bench, half_put("late"))  # in the log before the decision, and not dispatched
    with pytest.raises(UnknownTransactionError):
        desk.commit(EndRequest("tx", count=2))
    desk.commit(EndRequest("tx", count=1))
    finished(bench, desk)
    assert bench.bodies() == [b"a"]
    assert not bench.store.transactions.halves
    with pytest.raises(BatchRefusedError, match="has ended"):
        put_halves(bench, half_put("later"))


@pytest.mark.parametrize("commits", [True, False])
def test_a_request_that_comes_again_is_answered_also_after_the_decision(*, commits: bool) -> None:
    """Its answer was lost; messages of others may be in it as well, and they are stored."""
    bench = bench_of()
    mark = ProducerMark("p1", 0, 0, 0, 2)
    half = half_put("a")
    carries = f"{PRODUCER_MARK}\x01{mark.encode()}\x02".encode()
    half = replace(half, properties=half.properties + carries)
    request = batch_of([half, Put("T", 0, b"plain", b"")])
    first = bench.store.put(request)
    desk = ready_desk(bench)
    desk.commit(TX) if commits else desk.roll_back(TX)
    finished(bench, desk)
    again = bench.store.put(request)
    assert (again.duplicate, again.end_offset) == (True, first.end_offset)
    assert sorted(bench.bodies("T")) == sorted([b"plain"] + [b"a"] * commits)


def test_a_half_that_cannot_be_read_does_not_stop_the_others() -> None:
    bench = bench_of()
    offsets = [
        put_halves(bench, half_put(name, name)).segments[0].physical_offset for name in "abc"
    ]
    desk = ready_desk(bench)
    damage(bench, offsets[1] + 88, b"?")
    with pytest.raises(HalvesUnreadableError, match="1 of 1 message of transaction 'b'"):
        desk.commit(EndRequest("b"))
    for name in "ac":
        desk.commit(EndRequest(name))
    finished(bench, desk)
    assert bench.bodies() == [b"a", b"c"]
    damage(bench, offsets[1] + 88, b"b")
    assert desk.commit(EndRequest("b")).committed


def damage(bench: Bench, offset: int, data: bytes) -> None:
    name = bench.store.directory / "commitlog" / f"{0:020d}"
    bench.files.content(name)[offset : offset + len(data)] = data


def test_a_transaction_that_is_given_up_is_copied() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"), half_put("b"), half_put("x", "other"))
    desk = ready_desk(bench)
    desk.give_up("tx")
    finished(bench, desk)
    assert bench.bodies(UNDECIDED_TOPIC) == [b"a", b"b"]
    assert bench.store.topics.get(UNDECIDED_TOPIC) is not None, "consumers find it"
    assert bench.bodies() == []
    assert [each.half.transaction_id for each in bench.store.transactions.halves.values()] == [
        "other"
    ]
    desk.commit(EndRequest("other"))
    with pytest.raises(TransactionDecidedError):
        desk.give_up("other")
    bench.settle()
    assert bench.bodies(UNDECIDED_TOPIC) == [b"a", b"b"]


# ---- offsets

OFFSETS = (GroupOffset("g", "T", 0, 3), GroupOffset("g", "U", 1, 5))


def test_offsets_count_when_the_decision_is_dispatched() -> None:
    bench = bench_of()
    bench.put(4)
    put_halves(bench, half_put("a", topic="U"))
    desk = ready_desk(bench)
    offsets = bench.store.consumer_offsets
    assert desk.offsets_known("g")
    desk.commit(EndRequest("tx", count=1, offsets=OFFSETS))
    assert offsets.offset("g", "T", 0) is None
    assert not desk.offsets_known("g")
    assert desk.offsets_known("h")
    bench.settle()
    assert desk.offsets_known("g")
    assert offsets.offset("g", "T", 0) == 3
    bench.crash()
    assert bench.store.consumer_offsets.offset("g", "U", 1) == 5, "the log says so"


def test_offsets_without_a_message() -> None:
    bench = bench_of()
    desk = ready_desk(bench)
    desk.commit(EndRequest("tx", count=0, offsets=OFFSETS))
    bench.settle()
    assert desk.commit(EndRequest("tx", count=0, offsets=OFFSETS)).again
    assert bench.store.consumer_offsets.offset("g", "T", 0) == 3


def test_offsets_that_may_not_be_set_leave_the_transaction_open() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"))
    desk = ready_desk(bench)
    seen = []

    def refuse() -> None:
        seen.append(desk.offsets_known("g"))
        raise BatchRefusedError("FENCED_MEMBER", "member_id", "not any more")

    with pytest.raises(BatchRefusedError):
        desk.commit(EndRequest("tx", count=1, offsets=OFFSETS, admit=refuse))
    assert seen == [False], "who owns the queue next waits, whatever comes of it"
    assert desk.offsets_known("g")
    bench.settle()
    assert bench.bodies() == []
    assert desk.commit(EndRequest("tx", count=1, offsets=OFFSETS)).committed


def test_offsets_never_go_back_but_by_hand() -> None:
    bench = bench_of()
    desk = ready_desk(bench)
    offsets = bench.store.consumer_offsets

    def commit(transaction_id: str, offset: int) -> None:
        row = GroupOffset("g", "T", 0, offset)
        desk.commit(EndRequest(transaction_id, count=0, offsets=(row,)))
        bench.settle()

    commit("1", 7)
    commit("2", 4)
    assert offsets.offset("g", "T", 0) == 7
    offsets.commit("g", "T", 0, 5)
    assert offsets.offset("g", "T", 0) == 7
    older = b'{"offsetTable":{"T@g":{0:2},"T@h":{0:9}}}'
    offsets.replace_from_json(older)
    assert (offsets.offset("g", "T", 0), offsets.offset("h", "T", 0)) == (7, 9)
    offsets.commit("g", "T", 0, 8)
    assert offsets.offset("g", "T", 0) == 8
    end = desk.set_offsets((GroupOffset("g", "T", 0, 1),))
    assert not desk.offsets_known("g")
    bench.settle()
    assert end == bench.store.log.wrote.value
    assert offsets.offset("g", "T", 0) == 1
    bench.crash()
    assert bench.store.consumer_offsets.floor("g", "T", 0) == 1
    desk = ready_desk(bench)
    desk.set_offsets((GroupOffset("g", "T", 0, NO_OFFSET),))
    bench.settle()
    assert bench.store.consumer_offsets.offset("g", "T", 0) is None


def test_an_offset_that_was_set_back_by_hand_stays_so_once_the_log_is_not_asked_any_more() -> None:
    """A snapshot of what the log says is not to be ahead of the table that it has lowered."""
    bench = bench_of()
    desk = ready_desk(bench)
    desk.commit(EndRequest("1", count=0, offsets=(GroupOffset("g", "T", 0, 7),)))
    bench.settle()
    bench.store.consumer_offsets.save(now_ms=1)
    desk.set_offsets((GroupOffset("g", "T", 0, 1),))
    bench.settle()
    bench.store.flush()
    bench.store.persist()
    bench.crash()
    assert bench.store.consumer_offsets.offset("g", "T", 0) == 1


# ---- stores of brokers


def half_of_a_broker(bench: Bench, name: str, check_times: int = 0) -> None:
    """As a broker stores it: without an id of ours."""
    put = half_put(name)
    raw = put.properties.replace(b"__TL_TX\x01tx\x02", b"")
    if check_times:
        raw += b"TRANSACTION_CHECK_TIMES\x01%d\x02" % check_times
    own(bench, replace(put, properties=raw))


def own(bench: Bench, *puts: Put) -> None:
    bench.store.put_own(lambda: batch_of(puts))


def test_halves_below_the_broker_s_offset_have_ended() -> None:
    bench = bench_of()
    for name in "abc":
        half_of_a_broker(bench, name)
    bench.store.consumer_offsets.commit(BROKER_TRANSACTIONS, HALF_TOPIC, 0, 2)
    desk = ready_desk(bench)
    desk.take_over()
    bench.settle()
    assert [each.half.key for each in bench.store.transactions.halves.values()] == ["c"]
    end = bench.store.log.wrote.value
    desk.take_over()
    assert bench.store.log.wrote.value == end, "once"
    bench.crash()
    assert [each.half.key for each in bench.store.transactions.halves.values()] == ["c"]


def test_a_half_that_a_broker_has_stored_again_counts_once() -> None:
    bench = bench_of()
    half_of_a_broker(bench, "a")
    half_of_a_broker(bench, "b")
    half_of_a_broker(bench, "a", 1)
    desk = ready_desk(bench)
    assert [each.queue_offset for each in bench.store.transactions.halves.values()] == [1, 2]
    desk.commit(EndRequest("a", count=1))
    finished(bench, desk)
    assert bench.bodies() == [b"a"]


def test_a_broker_s_decisions_end_its_halves() -> None:
    bench = bench_of()
    for name in "abcd":
        half_of_a_broker(bench, name)
    half_of_a_broker(bench, "d", 1)
    halves = stored_halves(bench)
    committed = Put("T", 0, b"a", b"UNIQ_KEY\x01a\x02", sys_flag=8)
    own(bench, committed)  # names nothing: of another store
    ready_desk(bench)
    assert len(bench.store.transactions.halves) == 4
    own(bench, Put(OP_HALF_TOPIC, 0, b"1,", b"TAGS\x01d\x02"))
    own(bench, Put(UNDECIDED_TOPIC, 0, b"c", halves["c"]))
    bench.settle()
    assert [each.half.key for each in bench.store.transactions.halves.values()] == ["a", "d"]
    assert bench.store.transactions.outcomes == {"b": False, "c": False}


def stored_halves(bench: Bench) -> dict[str, bytes]:
    bench.settle()
    return {str(each.uniq_key): each.properties_raw for each in stored(bench, HALF_TOPIC)}


def test_what_a_broker_has_to_know() -> None:
    bench = bench_of()
    fold = bench.store.transactions
    desk = ready_desk(bench)
    assert fold.broker_offsets() == (0, 0)
    for name in "abc":
        put_halves(bench, half_put(name, name))
        bench.settle()
        if name != "b":
            desk.commit(EndRequest(name))
            bench.settle()
    assert fold.broker_offsets() == (1, 1), "b is open; the OP record of c comes behind it"
    desk.roll_back(EndRequest("b"))
    bench.settle()
    assert fold.broker_offsets() == (3, 3)


def test_a_message_that_was_sent_twice_is_committed_once() -> None:
    bench = Bench()
    first = put_halves(bench, half_put("a", "a"))
    second = put_halves(bench, half_put("a", "a"))
    desk = ready_desk(bench)
    only = second.segments[0].physical_offset
    assert [each.log_offset for each in bench.store.transactions.of_key("a")] == [
        first.segments[0].physical_offset, only,
    ]  # fmt: skip
    assert len(desk.commit(EndRequest("a", only=only)).messages) == 1
    finished(bench, desk)
    assert bench.bodies() == [b"a"]
    assert not bench.store.transactions.halves
    assert bench.store.transactions.of_key("a") == []
    assert desk.commit(EndRequest("a", only=first.segments[0].physical_offset)).again


def test_a_half_that_is_not_there_is_not_committed() -> None:
    bench = Bench()
    put_halves(bench, half_put("a", "a"))
    desk = ready_desk(bench)
    with pytest.raises(UnknownTransactionError):
        desk.commit(EndRequest("a", only=bench.store.log.wrote.value))
    assert desk.commit(EndRequest("a")).messages


def test_halves_are_found_by_their_key_after_a_restart() -> None:
    bench = Bench()
    put_halves(bench, half_put("a", "tx1"))
    put_halves(bench, half_put("a", "tx2"), half_put("b", "tx2"))
    bench.settle()
    bench.reopen()
    bench.settle()
    found = bench.store.transactions.of_key("a")
    assert [each.half.transaction_id for each in found] == ["tx1", "tx2"]
