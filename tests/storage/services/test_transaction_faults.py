"""Transactions, where something else goes wrong besides."""

from dataclasses import replace
from typing import Any

import pytest

from fakes.batches import Put
from fakes.halves import finished, half_put, put_halves, ready_desk
from fakes.stores import CONFIG, Bench
from tandemlog.format.constants import MAX_PROPERTIES, UNDECIDED_TOPIC
from tandemlog_server.storage.services.transaction_desk import EndRequest
from tandemlog_server.storage.services.transaction_errors import HalvesUnreadableError


def bench_of(**settings: object) -> Bench:
    config = replace(CONFIG, commit_log_file_size=1 << 19, queue_file_size=20 * 1000)
    return Bench(replace(config, **settings), topics=("T", "U"))  # type: ignore[arg-type]


def full(put: Put) -> Put:
    """Its properties are as long as they may be, and no text: what replaces a byte would be
    longer."""
    room = MAX_PROPERTIES - len(put.properties) - len(b"more\x01\x02")
    return replace(put, properties=put.properties + b"more\x01" + b"\xff" * room + b"\x02")


def test_properties_of_any_bytes_are_committed_as_they_are() -> None:
    bench = bench_of()
    put_halves(bench, full(half_put("a")), full(half_put("x", "other")))
    desk = ready_desk(bench)
    desk.commit(EndRequest("tx"))
    desk.give_up("other")
    finished(bench, desk)
    assert bench.bodies() == [b"a"]
    assert bench.bodies(UNDECIDED_TOPIC) == [b"x"]
    assert not bench.store.transactions.halves


def test_halves_that_are_gone_do_not_stop_the_others() -> None:
    bench = bench_of(commit_log_file_size=1 << 13)
    put_halves(bench, half_put("gone"))
    bench.put(60, size=200)
    put_halves(bench, half_put("here", "other"))
    bench.settle()
    bench.store.close()
    bench.files.unlink(bench.store.directory / "commitlog" / f"{0:020d}")
    bench.open()
    desk = ready_desk(bench)
    with pytest.raises(HalvesUnreadableError):
        desk.commit(EndRequest("tx"))
    desk.give_up("tx")
    desk.commit(EndRequest("other"))
    finished(bench, desk)
    assert bench.bodies()[-1:] == [b"here"]
    assert not bench.store.transactions.halves


def test_a_message_for_a_queue_that_its_topic_lost_comes_to_one_that_is_there() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a", queue_id=3), half_put("b", queue_id=1))
    desk = ready_desk(bench)
    fewer = replace(bench.store.topics.table["T"], read_queues=2, write_queues=2)
    bench.store.create_topic(fewer, update=True)
    places = desk.commit(EndRequest("tx")).messages
    assert [(each.queue_id, each.queue_offset) for each in places] == [(1, 0), (1, 1)]
    finished(bench, desk)
    assert bench.bodies("T", 1) == [b"a", b"b"]


def test_an_outcome_of_a_term_that_is_over_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"))
    desk = ready_desk(bench)
    put_own = bench.store.put_own

    def at_the_end_of_the_term(*args: Any, **more: Any) -> Any:
        result = put_own(*args, **more)
        desk.end()
        desk.begin()
        return result

    monkeypatch.setattr(bench.store, "put_own", at_the_end_of_the_term)
    desk.commit(EndRequest("tx"))
    assert desk.known("tx", committed=True) is None, "it may be cut"
    bench.settle()
    assert desk.known("tx", committed=True) is not None
