"""`pull` and `put`: bodies through a pipe, where reading begins and ends, copies of a topic."""

import base64
import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from helpers.cli_node import (  # noqa: F401 - fixtures
    Run,
    node_of_a_module,
    objects,
    run_of_a_test,
    topic_of_a_test,
)
from tandemlog import Consumer
from tandemlog.message import Message
from tandemlog.produce.framing import is_reserved
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.sync.sync_producer import Producer
from tandemlog_server.node.node import Node

numbers = count()


def send(node: Node, *messages: Message) -> None:
    with Producer(node.endpoints.listen) as producer:
        for message in messages:
            producer.send(message)
        producer.flush()


def bodies(out: str) -> list[bytes]:
    return [base64.b64decode(each["body"]) for each in objects(out)]


# --format


def test_bodies_as_they_are(node: Node, topic: str) -> None:
    """Through a real pipe: no decoding on the way."""
    raw = bytes(range(256))
    send(node, Message(topic, raw, queue_id=0), Message(topic, b"\n\0", queue_id=0))
    command = [sys.executable, "-m", "tandemlog", "pull", topic, "--format", "raw"]
    ended = subprocess.run(
        [*command, "--endpoint", node.endpoints.listen], capture_output=True, check=True
    )
    assert (ended.stdout, ended.stderr) == (raw + b"\n\0", b"")


def test_bodies_as_text(run: Run, node: Node, topic: str) -> None:
    long = "ü" * 20_000
    send(node, *(Message(topic, text.encode(), queue_id=0) for text in ("one", "", long)))
    assert run("pull", topic, "--format", "text") == (0, f"one\n\n{long}\n", "")
    send(node, Message(topic, b"a\xff", queue_id=0), Message(topic, b"\xfe", queue_id=0))
    code, out, err = run("pull", topic, "--format", "text", "--offset", "3")
    assert (code, out) == (0, "a\ufffd\n\ufffd\n")
    assert err == (
        f"tandemlog: {topic}, queue 0, offset 3: the body is not UTF-8; each invalid byte is shown "
        "as U+FFFD, --format raw writes bodies as they are (said once)\n"
    )


def test_a_filter_selects(run: Run, node: Node, topic: str) -> None:
    amounts = (3, 7, 9)
    send(node, *(Message(topic, b"%d" % n, properties={"amount": str(n)}) for n in amounts))
    code, out, _ = run("pull", topic, "--format", "text", "--where", "amount > 5")
    assert (code, sorted(out.split())) == (0, ["7", "9"])
    code, _, err = run("pull", topic, "--where", "amount >")
    assert code == 2
    assert "filter at character 9" in err


def test_bodies_as_json(run: Run, node: Node, topic: str) -> None:
    given = [b'{"a": [1, null]}', b'"text"', b"17", b"hello", b"NaN", b"\xff", b"[" * 100_000]
    send(node, *(Message(topic, body, queue_id=0) for body in given))
    code, out, err = run("pull", topic, "--format", "json")
    assert code == 0
    rows = objects(out)
    assert [row["body"] for row in rows] == [{"a": [1, None]}, "text", 17, None, None, None, None]
    assert [base64.b64decode(row["body_base64"]) for row in rows[3:]] == given[3:]
    assert not any("body_base64" in row for row in rows[:3])
    assert err.count("\n") == 1
    assert "offset 3: the body is not JSON" in err


def test_a_template(run: Run, node: Node, topic: str) -> None:
    send(
        node,
        Message(topic, b"x%s", ["k1", "k2"], "A", {"color": "red", "size": "9"}, queue_id=1),
        Message(topic, b"", queue_id=1),
    )

    def pulled(template: str) -> str:
        code, out, err = run("pull", topic, "--format", template)
        assert (code, err) == (0, "")
        return out

    assert pulled(r"%t %p %q %o [%k] %g %s %S %K %h %%\n") == (
        f"{topic} 1 1 0 [k1 k2] A x%s 3 5 color=red,size=9 %\n{topic} 1 1 1 []   0 0  %\n"
    )
    assert pulled(r"%R\t\\\x41") == "\0\0\0\x03\t\\A\0\0\0\0\t\\A"
    (first, second) = objects(run("pull", topic, "--format", "jsonl")[1])
    assert pulled(r"%T %i\n") == "".join(
        f"{row['store_timestamp']} {row['msg_id']}\n" for row in (first, second)
    )
    date = pulled(r"%D\n").splitlines()[0]
    assert pulled("%o ") == "0 1 "
    assert run("pull", topic, "--until", date, "--max", "1", "--format", "%o")[1] == "0"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("xml", "'--format' must be one of table, jsonl, raw, text, json, or a template such as"),
        ("%z", "'%z' is not known in a template; there are %t %p"),
        ("%", "'%' is not known in a template"),
        (r"%s\q", r"'\\q' is not known in a template; there are \n"),
    ],
)
def test_a_format_that_is_none(run: Run, form: str, said: str) -> None:
    code, out, err = run("pull", "any", "--format", form)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_table_shows_dates_and_in_a_pipe_whole_bodies(
    run: Run, node: Node, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    send(node, Message(topic, b"y" * 12_000, queue_id=0))
    (row,) = objects(run("pull", topic, "--format", "jsonl")[1])
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(row["store_timestamp"] // 1000))
    date = f"{seconds}.{row['store_timestamp'] % 1000:03d}"
    for arguments in (("pull", topic), ("query", topic, "--id", row["uniq_key"])):
        out = run(*arguments)[1]
        assert date in out
        assert "y" * 12_000 in out
    described = run("topic", "describe", topic)[1]
    assert seconds in described
    assert date not in described, "it has to fit into 80 columns"


def test_a_reader_that_goes_away_is_no_failure(node: Node, topic: str) -> None:
    send(node, *(Message(topic, b"z" * 1_000, queue_id=0) for _ in range(300)))
    for form in ("table", "raw"):
        command = f"{sys.executable} -m tandemlog pull {topic} --format {form}"
        script = f"{{ {command} --endpoint {node.endpoints.listen}; echo $? >&2; }} | head -c 100"
        ended = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
        assert (len(ended.stdout), ended.stderr) == (100, b"0\n"), form


# Where reading begins and ends


def test_the_last_messages_of_a_topic(run: Run, node: Node, topic: str) -> None:
    for number in range(12):
        tag = "rare" if number < 2 else "usual"
        queue = 1 if number == 9 else 0
        send(node, Message(topic, b"%d" % number, tags=tag, queue_id=queue))

    def last(*options: str) -> str:
        code, out, err = run("pull", topic, "--format", "%s ", *options)
        assert (code, err) == (0, "")
        return out

    assert last("--last", "4") == "8 9 10 11 "
    assert last("--last", "2", "--queue", "0") == "10 11 "
    assert last("--last", "1", "--queue", "1") == "9 "
    assert last("--last", "1", "--tags", "rare") == "1 "
    assert last("--last", "100") == "".join(f"{number} " for number in range(12))
    assert last("--last", "3", "--follow", "--exit-on-idle", "50") == "9 10 11 "
    rows = objects(run("pull", topic, "--format", "jsonl")[1])
    (sixth,) = [each for each in rows if base64.b64decode(each["body"]) == b"6"]
    until = str(sixth["store_timestamp"])
    before = [
        base64.b64decode(each["body"]).decode()
        for each in sorted(rows, key=lambda each: each["physical_offset"])
        if each["store_timestamp"] <= sixth["store_timestamp"]
    ]
    assert last("--last", "3", "--until", until).split() == before[-3:]
    assert sorted(last("--until", until).split(), key=int) == before


def test_what_cannot_be_given_together(run: Run, topic: str) -> None:
    for others in (("--offset", "0"), ("--group", "g"), ("--max", "1")):
        code, _, err = run("pull", topic, "--last", "1", *others)
        assert (code, err.count("\n")) == (2, 1)
        assert "--last cannot be given with" in err
    assert run("pull", topic, "--last", "1", "--queue", "7")[0] == 4
    code, _, err = run("pull", topic, "--offset", "-5")
    assert code == 2
    assert "the last 5 messages are --last 5" in err
    assert "such as -5s" in err


def test_until_a_time(run: Run, node: Node, topic: str) -> None:
    send(node, Message(topic, b"old", queue_id=0))
    assert run("pull", topic, "--until", "-1h", "--format", "text")[1] == ""
    assert run("pull", topic, "--offset", "-1h", "--until", "now", "--format", "text")[1] == "old\n"
    later = str(int(time.time() * 1000) + 300)
    started = time.monotonic()
    code, out, _ = run("pull", topic, "--until", later, "--follow", "--format", "text")
    assert (code, out) == (0, "old\n")
    assert time.monotonic() - started < 20
    # a group is not moved past what was not read
    assert run("pull", topic, "--group", "early", "--until", "-1h")[0] == 0
    assert run("pull", topic, "--group", "early", "--format", "text")[1] == "old\n"


def test_a_group_commits_what_was_written(run: Run, node: Node, topic: str) -> None:
    send(node, *(Message(topic, b"%d" % n, tags="ab"[n % 2], queue_id=0) for n in range(10)))

    def pulled(*options: str) -> str:
        return run("pull", topic, "--group", "w", "--format", "%s ", *options)[1]

    def committed() -> list[int | None]:
        rows = objects(run("offsets", topic, "--group", "w", "--format", "jsonl")[1])
        return [row["committed_offset"] for row in rows]

    assert (pulled("--max", "3"), committed()) == ("0 1 2 ", [3, 0])
    assert (pulled("--max", "2", "--tags", "a"), committed()) == ("4 6 ", [8, 0])
    assert (pulled("--tags", "a"), committed()[0]) == ("8 ", 10)
    assert (pulled("--offset", "7"), committed()[0]) == ("7 8 9 ", 10)
    assert pulled() == ""


# put


def test_a_key_in_each_line(run: Run, topic: str) -> None:
    lines = b"".join(b"k%d\tbody\t%d\n" % (number % 5, number) for number in range(50))
    assert run("put", topic, "--key-separator", r"\t", "--key", "all", stdin=lines)[0] == 0
    rows = objects(run("pull", topic, "--format", "jsonl")[1])
    places: dict[str, set[int]] = {}
    for row in rows:
        key = row["keys"].split()[0]
        places.setdefault(key, set()).add(row["queue_id"])
        assert row["keys"] == f"{key} all"
        assert row["properties"]["__SHARDINGKEY"] == key
        assert base64.b64decode(row["body"]).startswith(b"body\t")
    assert sorted(places) == ["k0", "k1", "k2", "k3", "k4"]
    assert all(len(queues) == 1 for queues in places.values())
    for key, [queue] in ((key, list(queues)) for key, queues in places.items()):
        mine = [base64.b64decode(row["body"]) for row in rows if row["keys"].startswith(key)]
        assert mine == [b"body\t%d" % number for number in range(int(key[1]), 50, 5)], queue
    code, _, err = run("put", topic, "--key-separator", ":", stdin=b"no key\nk:v\n")
    assert code == 2
    assert err.splitlines() == [
        "tandemlog: line 1: no key separator ':' in the line",
        "tandemlog: 1 acknowledged, 1 not: 1 message could not be sent (see above)",
    ]


def test_equal_sharding_keys_share_a_queue(run: Run, topic: str) -> None:
    run("put", topic, "--sharding-key", "s", stdin=b"a\nb\nc\n")
    run("put", topic, "--sharding-key", "s", "--generate", "5")
    assert len({row["queue_id"] for row in objects(run("pull", topic, "-f", "jsonl")[1])}) == 1


def test_whole_files(run: Run, topic: str, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.bin", "b.bin")]
    for path, data in zip(paths, (bytes(range(256)) * 300, b"two\nlines\n"), strict=True):
        path.write_bytes(data)
    options = ("--queue", "0", "--format", "jsonl")
    code, out, _ = run("put", topic, *options, "--file", str(paths[0]), "--file", str(paths[1]))
    assert (code, len(objects(out))) == (0, 2)
    assert run("put", topic, *options, "--whole", str(paths[1]))[0] == 0
    assert run("put", topic, *options, "--whole", stdin=b"x\ny")[0] == 0
    found = bodies(run("pull", topic, "--format", "jsonl")[1])
    assert found == [paths[0].read_bytes(), b"two\nlines\n", b"two\nlines\n", b"x\ny"]
    code, out, err = run("put", topic, "--file", str(paths[0]), "--file", str(tmp_path / "c"))
    assert (code, out) == (2, "")
    assert "No such file" in err
    assert len(objects(run("pull", topic, "--format", "jsonl")[1])) == 4


def test_a_line_that_is_too_large_does_not_keep_the_others_back(
    run: Run, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"first\n" + b"x" * (5 << 20) + b"\nlast\n")
    code, out, err = run("put", topic, str(path), "--queue", "0", "--format", "jsonl")
    assert code == 2
    said = "the body has 5242880 bytes, the cluster's limit max_message_size is 4194304"
    assert err.splitlines() == [
        f"tandemlog: line 2: {said}",
        "tandemlog: 2 acknowledged, 1 not: 1 message could not be sent (see above)",
    ]
    first, second, third = objects(out)
    assert second == {"place": "line 2", "error": said}
    assert (first["queue_offset"], third["queue_offset"]) == (0, 1)
    assert bodies(run("pull", topic, "--format", "jsonl")[1]) == [b"first", b"last"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nothing", "no JSON: 'nothing'"),
        ("[1]", "no JSON object: '[1]'"),
        ('{"key":"k","text":"x"}', "unknown field 'key'; there are body, body_crc,"),
        ("{}", "a row has either body (in base64) or text"),
        ('{"body":"YQ==","text":"a"}', "a row has either body (in base64) or text"),
        ('{"body":{"a":1}}', 'body must be base64, as pull --format jsonl writes it, not {"a": 1}'),
        ('{"body":"hello!"}', 'body is not base64: "hello!"; a plain text goes into the field'),
        ('{"text":1}', "text must be a text, not 1"),
        ('{"text":"\\ud800"}', "text: not valid Unicode: '\\ud800'"),
        ('{"text":"","tags":["a"]}', 'tags must be a text, not ["a"]'),
        ('{"text":"","properties":{"a":1}}', "properties: 'a' must be a text, not 1"),
        ('{"text":"","properties":[]}', "properties must be an object of texts, not []"),
        ('{"text":"","queue_id":-1}', "queue_id -1 is negative"),
        ('{"text":"","queue_id":"1"}', 'queue_id must be a whole number up to 65535, not "1"'),
        ('{"text":"","flag":4294967296}', "flag must be a whole number up to 2147483647"),
        ('{"text":"","keys":["a b"]}', "key 'a b' has a space in it, which separates keys"),
        ('{"text":"","properties":{"":"x"}}', "name and value must not be empty"),
    ],
)
def test_a_row_that_is_none(run: Run, line: str, said: str) -> None:
    topic = f"rows-{next(numbers)}"
    run("topic", "create", topic, "--queues", "1")
    lines = f'{{"text":"before"}}\n{line}\n{{"text":"after"}}\n'
    code, _, err = run("put", topic, "--jsonl", stdin=lines.encode())
    assert code == 2
    assert err.startswith("tandemlog: line 2: ")
    assert said in err.splitlines()[0]
    assert run("pull", topic, "--format", "text")[1] == "before\nafter\n"


def test_many_bad_lines_are_counted(run: Run, topic: str) -> None:
    code, out, err = run("put", topic, "--jsonl", stdin=b"no\n" * 30)
    assert code == 2
    assert out.splitlines()[1].split()[:3] == [topic, "0", "30"]
    assert err.count("\n") == 21
    assert err.endswith("30 messages could not be sent (see above, and 10 more)\n")


def test_rows_for_a_topic_with_fewer_queues(run: Run, topic: str, tmp_path: Path) -> None:
    run("topic", "create", f"{topic}-wide", "--queues", "5")
    for queue in range(5):
        run("put", f"{topic}-wide", "--queue", str(queue), stdin=b"1\n2\n3\n")
    path = tmp_path / "rows"
    path.write_text(run("pull", f"{topic}-wide", "--format", "jsonl")[1])
    code, _, err = run("put", topic, str(path), "--jsonl")
    assert code == 4
    queue = int(err.split("queue ")[1].split()[0])  # the first that comes
    assert queue >= 2
    assert f"queue {queue} is not there: topic '{topic}' has 2; make more (tandemlog topic c" in err
    assert f"--update --queues {queue + 1}), or use --queues hash" in err
    run("topic", "delete", topic)
    run("topic", "create", f"{topic}-hash", "--queues", "2")
    assert run("put", f"{topic}-hash", str(path), "--jsonl", "--queues", "hash")[0] == 0
    rows = objects(run("pull", f"{topic}-hash", "--format", "jsonl")[1])
    assert sorted(row["queue_id"] for row in rows) == [0] * 9 + [1] * 6
    assert run("put", f"{topic}-hash", str(path), "--jsonl", "--queues", "any")[0] == 0
    assert run("put", f"{topic}-hash", str(path), "--jsonl", "--queue", "1")[0] == 0
    rows = objects(run("pull", f"{topic}-hash", "--queue", "1", "--format", "jsonl")[1])
    assert len(rows) >= 6 + 15


def test_a_dump_of_a_store_is_put_again(run: Run, node: Node, topic: str, tmp_path: Path) -> None:
    """Its bodies are as stored: compressed ones come back decompressed."""
    body = b"squeeze " * 1_000
    with Producer(node.endpoints.listen, ProducerOptions(compress_above=1_000)) as producer:
        producer.send(Message(topic, body, queue_id=0)).result(10)
    (pulled,) = objects(run("pull", topic, "--format", "jsonl")[1])
    with Consumer(node.endpoints.listen) as consumer:
        stored = consumer.pull(topic, 0, 0)[0].record.body
    dumped = {**pulled, "body": base64.b64encode(stored).decode()}
    lines = "".join(json.dumps(row) + "\n" for row in (pulled, dumped))
    assert run("put", topic, "--jsonl", stdin=lines.encode())[0] == 0
    assert bodies(run("pull", topic, "--format", "jsonl")[1]) == [body] * 3


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=12)
names = texts.filter(lambda name: bool(name) and not is_reserved(name))
keys = texts.map(lambda text: text.replace(" ", "_")).filter(bool)
messages: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    body=st.binary(max_size=60)
    | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    keys=st.lists(keys, max_size=3),
    tags=texts,
    properties=st.dictionaries(names, texts.filter(bool), max_size=3),
    queue_id=st.integers(0, 2),
    sharding_key=st.none() | texts.filter(bool),
    flag=st.integers(-(2**31) + 1, 2**31 - 1),
    born_timestamp=st.none() | st.integers(0, 2**62),
)


def kept(run: Run, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    """By queue, what must be the same in a copy."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in objects(run("pull", topic, "--format", "jsonl")[1]):
        mine = {
            name: value
            for name, value in row["properties"].items()
            if name == "__SHARDINGKEY" or not is_reserved(name)
        }
        fields = (row["body"], row["keys"], row["tags"], mine, row["flag"], row["born_timestamp"])
        found.setdefault(row["queue_id"], []).append(fields)
    return found


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # each example runs the program three times
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(messages, min_size=1, max_size=8))
def test_what_pull_gives_put_stores_again(
    run: Run, node: Node, tmp_path: Path, given_messages: list[dict[str, Any]]
) -> None:
    source, copy = (f"round-trip-{next(numbers)}" for _ in range(2))
    for name in (source, copy):
        run("topic", "create", name, "--queues", "3")
    send(node, *(Message(source, **each) for each in given_messages))
    rows = run("pull", source, "--format", "jsonl")[1]
    path = tmp_path / "rows"
    path.write_bytes(rows.encode())
    code, _, err = run("put", copy, str(path), "--jsonl")
    assert (code, err) == (0, "")
    stored = kept(run, source)
    assert sum(map(len, stored.values())) == len(given_messages)
    assert kept(run, copy) == stored
