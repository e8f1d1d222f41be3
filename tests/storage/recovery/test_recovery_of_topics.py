"""A damaged table of topics, whose backup lacks the newest one."""

from fakes.stores import DIRECTORY, Bench
from tandemlog_server.storage.metadata.topics import TopicConfig

TOPICS = DIRECTORY / "config" / "topics.json"


def test_a_topic_that_has_messages_does_not_vanish() -> None:
    bench = Bench()
    bench.store.topics.create(TopicConfig("New", 16, 16), 1)
    bench.put(3, "New", 12)
    bench.files.atomic_replace(TOPICS, b"{ damaged")
    version = bench.store.topics.version
    bench.kill()
    assert bench.store.topics.names() == ["New", "T"]
    made = bench.store.topics.get("New")
    assert made is not None
    assert (made.read_queues, made.write_queues, made.perm) == (13, 13, 6)
    assert bench.store.topics.version >= version, "slaves take it for newer"
    assert any("1 topic with messages created again: New" in n for n in bench.store.recovery.notes)
    bench.put(1, "New", 12)
    bench.reopen()
    assert bench.store.topics.names() == ["New", "T"]
    assert not any("created again" in note for note in bench.store.recovery.notes)


def test_an_empty_topic_leaves_no_trace_and_the_report_says_so() -> None:
    bench = Bench()
    bench.store.topics.create(TopicConfig("New", 4, 4), 1)
    bench.files.atomic_replace(TOPICS, b"")
    bench.reopen()
    assert bench.store.topics.names() == ["T"]
    assert any("created or changed may be missing" in n for n in bench.store.recovery.notes)


def test_a_deleted_topic_with_messages_stays_deleted_where_the_table_is_whole() -> None:
    bench = Bench()
    bench.put(3)
    bench.store.topics.delete("T", 1)
    bench.reopen()
    assert bench.store.topics.names() == []
