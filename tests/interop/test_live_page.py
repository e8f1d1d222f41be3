"""The recipes of docs/rocketmq-live.md run as they stand there, beside a real broker.

    10.0.0.5:10911 ──▶ the broker     127.0.0.1:7100, :7180, :9876, :10951 ──▶ free ports

`mqadmin` is RocketMQ's own program; its one call is made by RocketMQ's client library.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tandemlog
from documents.pages import DOCS
from documents.terminal import Terminal
from helpers.running import SMALL, free_ports, wait_until
from interop.jars import VERSION
from interop.live import QUEUES, TOPIC, SideBySide, side_by_side
from interop.rocketmq import BROKER_NAME, CLUSTER
from tandemlog import Message

pytestmark = [pytest.mark.interop, pytest.mark.lane("live")]

PAGE = DOCS / "rocketmq-live.md"


def blocks(heading: str, language: str) -> list[str]:
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1]
    section = section.split("\n## ", 1)[0]
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in found]


def commands(heading: str) -> list[str]:
    lines = [line for block in blocks(heading, "sh") for line in block.splitlines()]
    return [command for line in lines if (command := re.sub(r"\s+#.*", "", line).strip())]


class Reader:
    """One who follows the page."""

    def __init__(self, terminal: Terminal, pair: SideBySide) -> None:
        self.terminal = terminal
        self.pair = pair
        grpc, http, remoting = free_ports(3)
        self.endpoint = f"127.0.0.1:{grpc}"
        self.places = {
            "10.0.0.5:10911": pair.broker.address,
            "127.0.0.1:7100": self.endpoint,
            "127.0.0.1:7180": f"127.0.0.1:{http}",
            "127.0.0.1:9876": f"127.0.0.1:{pair.name_server.port}",
            "127.0.0.1:10951": f"127.0.0.1:{remoting}",
            "broker-a": BROKER_NAME,
            "DefaultCluster": CLUSTER,
        }

    def here(self, text: str) -> str:
        for place, ours in self.places.items():
            text = text.replace(place, ours)
        return text

    def run(self, command: str, *, fails: bool = False) -> str:
        code, said = self.terminal.run(self.here(command))
        assert (code != 0) is fails, f"{command}: {code}\n{said}"
        return said

    def write(self, name: str, text: str) -> None:
        """A configuration of the page, with small files."""
        sizes = "".join(f"{key} = {value}\n" for key, value in SMALL.items())
        (self.terminal.folder / name).write_text(self.here(text) + sizes, encoding="utf-8")

    def wait_for_row(self, shows: Callable[[str], bool], endpoint: str) -> None:
        wait_until(
            "the list to show it",
            lambda: shows(self.terminal.run(f"tandemlog list --endpoint {endpoint}")[1]),
            120,
        )


def test_a_copy_for_spark_and_python(tmp_path: Path) -> None:
    heading = "A copy for Spark and Python"
    with side_by_side(tmp_path / "rocketmq", VERSION) as pair, Terminal(tmp_path) as terminal:
        reader = Reader(terminal, pair)
        with pair.load(messages=400) as load:
            load.wait_for_end()
        up, *rest = commands(heading)
        terminal.up(reader.here(up))
        reader.wait_for_row(lambda said: "following" in said, terminal.endpoint)
        _, end = pair.broker_span()
        wait_until(
            "the copy",
            lambda: f"{end}" in terminal.run("tandemlog list --format jsonl")[1],
            120,
        )
        said = {command.split()[1]: reader.run(command) for command in rest}
        assert TOPIC in said["topic"]
        assert "load-" in said["pull"]
        assert "load-0-1" in said["query"]
        assert any((terminal.folder / "stats").rglob("*.parquet")), said["pipeline"]
        (example,) = blocks(heading, "python")
        terminal.write("example.py", example)
        assert "400 messages" in reader.run("python example.py")
        assert "0 messages" in reader.run("python example.py")


def test_a_standby_takes_over(tmp_path: Path) -> None:
    heading = "A standby in another language"
    with side_by_side(tmp_path / "rocketmq", VERSION) as pair, Terminal(tmp_path) as terminal:
        reader = Reader(terminal, pair)
        (config,) = blocks(heading, "toml")
        reader.write("standby.toml", config)
        check, node, takeover = commands(heading)
        reader.run(check)
        terminal.run(f"{node} 2> standby.log &")
        with pair.load(messages=400) as load:
            load.wait_for_end()
            promised = load.acknowledged()
        _, end = pair.broker_span()
        reader.wait_for_row(lambda said: "following" in said and f"{end}" in said, reader.endpoint)
        # so long that a broker or a node that stands still for a while answers in the end
        assert "still takes writes" in reader.run(f"{takeover} --timeout 10", fails=True)
        pair.broker.kill()
        said = reader.run(takeover)
        assert "is the master since" in said
        with tandemlog.Producer(reader.endpoint) as producer:
            assert producer.send(Message(TOPIC, b"after the move")).result(30)
        with (
            tandemlog.Consumer(reader.endpoint) as consumer,
            consumer.follow(TOPIC, until_end=True) as stream,
        ):
            assert sum(1 for _ in stream) == len(promised) + 1
        assert terminal.run("kill -TERM %1; wait %1")[0] == 0


def test_moving_over_and_back(tmp_path: Path) -> None:
    heading = "Moving over, and back"
    with side_by_side(tmp_path / "rocketmq", VERSION) as pair, Terminal(tmp_path) as terminal:
        reader = Reader(terminal, pair)
        (config,) = blocks("A standby in another language", "toml")
        reader.write("standby.toml", config)
        terminal.run("tandemlog node --config standby.toml 2> standby.log &")
        load, consumer = pair.load(rate=500, timeout_ms=30_000), pair.consumer("readers")
        load.wait_for(1_500)
        load.stop()
        promised = load.acknowledged()
        # not how many it handled: some may have come twice
        wait_until(
            "the consumer to be at the end",
            lambda: {each.key for each in consumer.handled()} >= promised.keys(),
            120,
        )
        consumer.stop()
        # it does not wait for an answer to its last commit
        wait_until(
            "the broker to have the group's offsets",
            lambda: sum(pair.client.consumer_offsets("readers", TOPIC).values()) == len(promised),
        )
        mqadmin, takeover = commands(heading)
        assert re.fullmatch(r"mqadmin updateBrokerConfig -b \S+ -k brokerPermission -v 4", mqadmin)
        pair.client.set_broker_config("brokerPermission", 4)
        reader.wait_for_row(lambda said: "following" in said, reader.endpoint)
        assert "Writers had a break of" in reader.run(takeover)
        pair.broker.stop()
        sent = put(reader.endpoint, 300)
        assert terminal.run("kill -TERM %1; wait %1")[0] == 0

        # the way back
        (section,) = blocks(heading, "toml")
        reader.write("standby.toml", config.replace('follow = "rocketmq://10.0.0.5:10911"\n', ""))
        path = terminal.folder / "standby.toml"
        path.write_text(path.read_text() + reader.here(section))
        terminal.run("tandemlog node --config standby.toml 2>> standby.log &")
        reader.wait_for_row(lambda said: "running" in said, reader.endpoint)
        pair.broker.restart(brokerRole="SLAVE", brokerId=1, brokerPermission=6)
        end = log_end(reader.endpoint)
        pair.broker.wait_until_serving()
        wait_until("the old broker to have it", lambda: pair.broker_span()[1] >= end, 120)
        read = read_all(reader.endpoint, "readers")
        assert read == sent.keys()
        reader.wait_for_row(lambda said: "rocketmq:127.0.0.1" in said, reader.endpoint)
        wait_until(
            "the old broker to know the offsets",
            lambda: (
                sum(pair.client.consumer_offsets("readers", TOPIC, pair.broker).values())
                == len(promised) + len(sent)
            ),
            150,
        )
        assert terminal.run("kill -TERM %1; wait %1")[0] == 0
        pair.broker.restart(brokerRole="ASYNC_MASTER", brokerId=0)
        pair.broker.wait_until_serving()
        for queue_id in range(QUEUES):
            pair.client.wait_for(TOPIC, queue_id)
        records = pair.client.records(TOPIC, QUEUES)
        assert records.keys() == promised.keys() | sent.keys()
        assert promised.items() <= records.items()
        offsets = pair.client.consumer_offsets("readers", TOPIC)
        assert sum(offsets.values()) == len(records)


def put(endpoint: str, count: int) -> dict[str, int]:
    with tandemlog.Producer(endpoint) as producer:
        sent = {
            f"ours-{number}": producer.send(Message(TOPIC, b"%d" % number, keys=f"ours-{number}"))
            for number in range(count)
        }
        return {key: future.result(30).queue_offset for key, future in sent.items()}


def read_all(endpoint: str, group: str) -> set[str]:
    """What a member of the group gets from where the group is, committed."""
    with (
        tandemlog.Consumer(endpoint, group=group) as consumer,
        consumer.follow(TOPIC, until_end=True) as stream,
    ):
        keys = [message.keys[0] for message in stream]
        stream.commit()
    assert len(keys) == len(set(keys))
    return set(keys)


def log_end(endpoint: str) -> int:
    with tandemlog.Admin(endpoint) as admin:
        return max(node.wrote_offset for node in admin.cluster().nodes)
