"""The commands against a running node: fields, formats, exit codes."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.cli_node import (  # noqa: F401 - fixtures
    Run,
    node_of_a_module,
    objects,
    run_of_a_test,
    topic_of_a_test,
)
from tandemlog import Admin
from tandemlog.errors import QueuesNotEmptyError
from tandemlog.message import Message
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.sync.sync_producer import Producer
from tandemlog_server.node.node import Node

DUMP_FIELDS = {
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "size",
    "version",
    "msg_id",
    "tags",
    "keys",
    "uniq_key",
    "properties",
    "sys_flag",
    "flag",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "body",
}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize("what", [("create",), ("create", "--update"), ("delete",)])
def test_the_stores_own_topics_are_refused(
    run: Run, what: tuple[str, ...], dry: tuple[str, ...]
) -> None:
    code, out, err = run("topic", *what, "SCHEDULE_TOPIC_XXXX", *dry)
    assert (code, out) == (2, "")
    assert "one of the store's own topics" in err


@pytest.mark.parametrize(
    "command",
    [
        ("topology",),
        ("history",),
        ("switchover", "--yes"),
        ("failover", "--to", "n1", "--force", "--yes"),
        ("pause",),
        ("resume",),
        ("member", "list"),
        ("member", "add", "n1"),
        ("member", "remove", "n1"),
    ],
)
def test_where_roles_are_configured_nothing_is_elected(run: Run, command: tuple[str, ...]) -> None:
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert "has no coordinator: its roles are configured" in err


def test_topics(run: Run) -> None:
    code, out, _ = run("topic", "create", "made", "--queues", "3", "--format", "jsonl")
    assert code == 0
    assert objects(out) == [
        {
            "topic": "made",
            "read_queues": 3,
            "write_queues": 3,
            "perm": "rw",
            "order": False,
            "attributes": {},
        }
    ]
    code, _, err = run("topic", "create", "made")
    assert (code, err) == (5, "tandemlog: topic 'made' exists; change it with --update\n")
    code, out, _ = run("topic", "create", "made", "--queues", "4", "--update", "--format", "jsonl")
    assert objects(out)[0]["read_queues"] == 4
    code, out, _ = run("topic", "describe", "made", "--format", "jsonl")
    assert [queue["queue_id"] for queue in objects(out)[0]["queues"]] == [0, 1, 2, 3]
    assert "made" in run("topic", "list")[1]
    code, _, err = run("topic", "delete", "made", "--dry-run")
    assert (code, err) == (0, "made: nothing was changed\n")
    assert run("topic", "delete", "made") == (0, "made: deleted\n", "")
    for command in ("describe", "delete"):
        code, _, err = run("topic", command, "made")
        assert code == 4
        assert "'made'" in err
        assert len(err.splitlines()) == 1


def test_an_update_changes_only_what_is_named(run: Run) -> None:
    def create(*options: str) -> dict[str, Any]:
        code, out, err = run("topic", "create", "kept", *options, "--format", "jsonl")
        assert code == 0, err
        assert err == ("kept: nothing was changed\n" if "--dry-run" in options else "")
        (row,) = objects(out)
        return row

    first = create("--queues", "8", "--order", "--attribute", "a=1", "--attribute", "b=2")
    run("put", "kept", "--queue", "7", stdin=b"far\n")
    reading = first | {"perm": "r"}
    assert create("--update", "--perm", "r", "--dry-run") == reading
    assert create("--update") == first
    assert create("--update", "--perm", "r") == reading
    assert "far" in run("pull", "kept")[1]
    assert create("--update", "--attribute", "b=3")["attributes"] == {"a": "1", "b": "3"}
    last = create("--update", "--no-order", "--perm", "rw", "--queues", "9")
    assert last == first | {
        "order": False,
        "read_queues": 9,
        "write_queues": 9,
        "attributes": {"a": "1", "b": "3"},
    }


def test_read_and_write_queues_that_differ_stay_so(run: Run, node: Node, topic: str) -> None:
    held = node.store.topics.table[topic]
    node.store.topics.create(replace(held, read_queues=6, write_queues=3), 1, update=True)
    code, out, _ = run("topic", "create", topic, "--update", "--order", "--format", "jsonl")
    assert code == 0
    (row,) = objects(out)
    assert (row["read_queues"], row["write_queues"], row["order"]) == (6, 3, True)


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_a_queue_with_messages_is_not_taken_away(run: Run, dry_run: tuple[str, ...]) -> None:
    name = f"held{len(dry_run)}"
    run("topic", "create", name, "--queues", "8")
    run("put", name, "--queue", "5", stdin=b"a\nb\n")
    code, out, err = run("topic", "create", name, "--update", "--queues", "5", *dry_run)
    assert (code, out) == (5, "")
    assert err == (
        f"tandemlog: topic '{name}': queue 5 holds 2 messages that could not be pulled with "
        "5 queues; keep 6 or more until they expire\n"
    )
    (row,) = objects(run("topic", "describe", name, "--format", "jsonl")[1])
    assert (row["read_queues"], row["write_queues"]) == (8, 8)
    assert run("topic", "create", name, "--update", "--queues", "6", *dry_run)[0] == 0


def test_the_master_takes_no_queue_with_messages_away_either(run: Run, node: Node) -> None:
    run("topic", "create", "api", "--queues", "8")
    run("put", "api", "--queue", "5", stdin=b"a\n")
    with Admin(node.endpoints.listen) as admin:
        with pytest.raises(QueuesNotEmptyError, match=r"queue 5 holds 1 message .*keep 6"):
            admin.create_topic("api", 5, update=True)
        assert admin.create_topic("api", 6, update=True).read_queues == 6


def test_one_thing_is_no_plural(run: Run) -> None:
    run("topic", "create", "single", "--queues", "2")
    run("put", "single", "--queue", "1", stdin=b"a\n")
    err = run("topic", "create", "single", "--update", "--queues", "1")[2]
    assert "queue 1 holds 1 message that could not be pulled with 1 queue;" in err


def test_a_dry_run_refuses_what_the_run_would(run: Run, topic: str) -> None:
    for arguments in ((topic,), ("nothing", "--update"), ("no spaces",)):
        plain = run("topic", "create", *arguments)
        assert plain[0] in (2, 4, 5)
        assert run("topic", "create", *arguments, "--dry-run") == plain
    assert run("topic", "create", "not-yet", "--dry-run")[2] == "not-yet: nothing was changed\n"
    assert run("topic", "describe", "not-yet")[0] == 4


def test_a_bad_topic_name(run: Run) -> None:
    code, _, err = run("topic", "create", "no spaces")
    assert code == 2
    assert "character ' '" in err


def test_lines_are_put_and_pulled(run: Run, topic: str) -> None:
    code, out, _ = run(
        *("put", topic, "--key", "k1", "--key", "k2", "--tag", "A", "--property", "color=red"),
        *("--queue", "1", "--format", "jsonl"),
        stdin=b"one\ntwo\nlast",
    )
    assert code == 0
    places = objects(out)
    assert [(each["queue_id"], each["queue_offset"]) for each in places] == [(1, 0), (1, 1), (1, 2)]
    code, out, _ = run("pull", topic, "--format", "jsonl")
    messages = objects(out)
    assert [base64.b64decode(each["body"]) for each in messages] == [b"one", b"two", b"last"]
    first = messages[0]
    assert set(first) == DUMP_FIELDS
    assert (first["keys"], first["tags"], first["properties"]["color"]) == ("k1 k2", "A", "red")
    assert first["msg_id"] == places[0]["msg_id"]
    assert first["physical_offset"] == places[0]["physical_offset"]


def test_a_table_for_people(run: Run, topic: str) -> None:
    code, out, _ = run("put", topic, stdin=b"hello world\n")
    assert code == 0
    assert out.splitlines()[0].split()[:3] == ["topic", "messages", "failed"]
    assert out.splitlines()[1].split()[:3] == [topic, "1", "0"]
    assert "hello world" in run("pull", topic)[1]


def test_a_file_of_lines(run: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(500)))
    code, out, _ = run("put", topic, str(path), "--format", "jsonl")
    assert code == 0
    assert len(objects(out)) == 500
    assert len(objects(run("pull", topic, "--format", "jsonl")[1])) == 500
    code, _, err = run("put", topic, str(tmp_path / "none"))
    assert code == 2
    assert "No such file" in err


def test_generated_messages(run: Run, topic: str) -> None:
    code, out, _ = run(
        *("put", topic, "--generate", "1000", "--size", "50", "--key", "g", "--format", "jsonl")
    )
    assert code == 0
    (totals,) = objects(out)
    assert (totals["messages"], totals["failed"], totals["body_bytes"]) == (1000, 0, 50_000)
    messages = objects(run("pull", topic, "--max", "30", "--format", "jsonl")[1])
    assert len(messages) == 30
    assert all(len(base64.b64decode(each["body"])) == 50 for each in messages)


def test_where_to_begin(run: Run, topic: str) -> None:
    places = objects(run("put", topic, "--queue", "0", "--format", "jsonl", stdin=b"a\nb\nc\n")[1])

    def bodies(*options: str) -> list[bytes]:
        code, out, _ = run("pull", topic, "--format", "jsonl", *options)
        assert code == 0
        return [base64.b64decode(each["body"]) for each in objects(out)]

    assert bodies("--offset", "earliest") == [b"a", b"b", b"c"]
    assert bodies("--offset", "latest") == []
    assert bodies("--offset", "1") == [b"b", b"c"]
    assert bodies("--offset", "1", "--queue", "0", "--max", "1") == [b"b"]
    assert bodies("--queue", "1") == []
    assert bodies("--offset", str(places[0]["store_timestamp"])) == [b"a", b"b", b"c"]
    assert bodies("--offset", "2100-01-01") == []
    assert bodies("--from", "master") == [b"a", b"b", b"c"]


def test_an_offset_beyond_all_numbers_is_refused(run: Run) -> None:
    for digits in (41, 5_000):
        code, out, err = run("pull", "any", "--offset", "9" * digits)
        assert (code, out) == (2, "")
        assert "a time in milliseconds is at most 9223372036854775807" in err


def test_tags_are_filtered(run: Run, topic: str) -> None:
    for tag in ("red", "green", "blue"):
        run("put", topic, "--tag", tag, stdin=tag.encode())
    out = run("pull", topic, "--tags", "red || blue", "--format", "jsonl")[1]
    assert {each["tags"] for each in objects(out)} == {"red", "blue"}
    code, out, err = run("pull", topic, "--tags", "red && blue")
    assert (code, out) == (2, "")
    assert "tag expression 'red && blue'" in err


def test_a_group_goes_on_where_it_stopped(run: Run, topic: str) -> None:
    run("put", topic, "--queue", "0", stdin=b"a\nb\nc\n")

    def pull(*options: str) -> list[bytes]:
        out = run("pull", topic, "--group", "readers", "--format", "jsonl", *options)[1]
        return [base64.b64decode(each["body"]) for each in objects(out)]

    assert pull("--max", "2") == [b"a", b"b"]
    rows = objects(run("offsets", topic, "--group", "readers", "--format", "jsonl")[1])
    assert [(each["committed_offset"], each["lag"]) for each in rows] == [(2, 1), (0, 0)]
    assert pull() == [b"c"]
    assert pull() == []


def test_a_group_from_its_first_commit_to_its_end(run: Run, topic: str) -> None:
    run("put", topic, "--queue", "0", stdin=b"a\nb\nc\n")
    assert run("group", "describe", "service")[0] == 4
    run("pull", topic, "--group", "service", "--max", "2")
    (found,) = objects(run("group", "describe", "service", "--format", "jsonl")[1])
    assert (found["state"], found["members"], found["lag"]) == ("empty", [], 1)
    assert found["lag_seconds"] > 0
    assert "service" in run("group", "list")[1]
    (moved, _) = objects(run("group", "reset", "service", "--shift-by=-1", "-f", "jsonl")[1])
    assert (moved["before"], moved["after"], moved["shift"]) == (2, 1, -1)
    assert run("pull", topic, "--group", "service", "--format", "text")[1] == "b\nc\n"
    assert run("group", "delete", "service") == (0, "service: deleted\n", "")
    assert run("offsets", topic, "--group", "service")[0] == 4


def test_offsets(run: Run, topic: str) -> None:
    places = objects(run("put", topic, "--queue", "0", "--format", "jsonl", stdin=b"a\nb\nc\n")[1])
    rows = objects(run("offsets", topic, "--format", "jsonl")[1])
    assert rows == [
        {"topic": topic, "queue_id": 0, "min_offset": 0, "max_offset": 3},
        {"topic": topic, "queue_id": 1, "min_offset": 0, "max_offset": 0},
    ]
    time = str(places[0]["store_timestamp"])
    lower = objects(run("offsets", topic, "--at", time, "--format", "jsonl")[1])
    upper = objects(
        run("offsets", topic, "--at", time, "--boundary", "upper", "--format", "jsonl")[1]
    )
    assert (lower[0]["offset"], upper[0]["offset"]) == (0, 2)


def test_queries(run: Run, topic: str) -> None:
    place = objects(run("put", topic, "--key", "find-me", "--format", "jsonl", stdin=b"x\n")[1])[0]
    (found,) = objects(run("query", topic, "--key", "find-me", "--format", "jsonl")[1])
    assert set(found) == DUMP_FIELDS
    assert base64.b64decode(found["body"]) == b"x"
    (by_id,) = objects(run("query", "--id", place["msg_id"], "--format", "jsonl")[1])
    assert by_id == found
    (unique,) = objects(run("query", topic, "--id", found["uniq_key"], "--format", "jsonl")[1])
    assert unique == found
    assert "find-me" in run("query", topic, "--key", "find-me")[1]
    for arguments, said in (
        ((topic, "--key", "nothing"), "no message found for 'nothing'"),
        (("--id", "7F000001000059D800000000FFFFFFFF"), "no message"),
        (("nothing", "--key", "k"), "no topic 'nothing'"),
    ):
        code, _, err = run("query", *arguments)
        assert code == 4
        assert said in err
    assert run("query", "--id", "xyz")[0] == 2


def test_a_compressed_body_comes_decompressed(run: Run, topic: str, node: Node) -> None:
    body = b"squeeze " * 1000
    with Producer(node.endpoints.listen, ProducerOptions(compress_above=1000)) as producer:
        producer.send(Message(topic, body)).result(10)
    (message,) = objects(run("pull", topic, "--format", "jsonl")[1])
    assert message["size"] < len(body)
    assert base64.b64decode(message["body"]) == body


def test_unknown_topics_and_queues(run: Run, topic: str) -> None:
    for arguments in (
        ("pull", "nothing"),
        ("offsets", "nothing"),
        ("put", "nothing", "--generate", "1"),
        ("pull", topic, "--queue", "9"),
    ):
        code, _, err = run(*arguments)
        assert code == 4, arguments
        assert len(err.splitlines()) == 1


def test_a_message_that_is_too_large(run: Run, topic: str) -> None:
    code, _, err = run("put", topic, "--generate", "1", "--size", str(5 << 20))
    assert code == 2
    assert str(4 << 20) in err


def test_nodes(run: Run, node: Node) -> None:
    _, out, _ = run("list", "--format", "jsonl")
    (row,) = objects(out)
    assert (row["node"], row["role"], row["state"]) == ("n0", "master", "running")
    assert row["endpoint"] == node.endpoints.listen
    for name in ("epoch", "in_sync", "wrote_offset", "confirm_offset", "lag_bytes", "lag_seconds"):
        assert name in row
    assert "n0" in run("list")[1]


def test_a_reset_of_a_work_queue_says_that_nothing_is_reset(run: Run) -> None:
    assert run("group", "policy", "workers", "--max-attempts", "3")[0] == 0
    code, _, err = run("group", "reset", "workers", "--to-latest")
    assert (code, "workers has committed no offsets" in err) == (0, True)
