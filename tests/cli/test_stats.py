"""`tandemlog stats`: rates out of counters, of a node that serves HTTP."""

import asyncio
from pathlib import Path

import pytest

from fakes.authority import Authority
from fakes.secured_node import access_text, running, settings, token
from helpers.cli_node import objects, program
from tandemlog import Message, Security
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.cli.cluster.traffic import Sample, parsed, rates, summed
from tandemlog_server.storage.metadata.topics import TopicConfig

TEXT = """# HELP tandemlog_messages_in_total Messages.
# TYPE tandemlog_messages_in_total counter
tandemlog_messages_in_total{topic="a",node="n0"} 100.0
tandemlog_messages_in_total{topic="b",node="n0"} 7.0
# TYPE tandemlog_bytes_in_total counter
tandemlog_bytes_in_total{topic="a",node="n0"} 5000.0
# TYPE tandemlog_bytes_out_total counter
tandemlog_bytes_out_total{topic="a",node="n0"} 20.0
# TYPE tandemlog_long_polls gauge
tandemlog_long_polls{node="n0"} 3.0
"""


def sample(node: str, at_s: float, **topics: tuple[float, ...]) -> Sample:
    return Sample(node, at_s, topics, {})


def test_counters_are_read() -> None:
    topics, now = parsed(TEXT)
    assert topics == {"a": (100.0, 5000.0, 0.0, 20.0), "b": (7.0, 0.0, 0.0, 0.0)}
    assert now == {"long_polls": 3.0}


def test_rates_are_differences_over_time() -> None:
    before = [sample("n0", 10.0, a=(100.0, 5000.0, 0.0, 0.0)), sample("n1", 10.0, a=(5.0,) * 4)]
    after = [
        sample("n0", 12.0, a=(300.0, 9000.0, 1.0, 2.0), new=(4.0, 8.0, 0.0, 0.0)),
        sample("n1", 12.0, a=(2.0, 6.0, 6.0, 6.0)),  # has restarted
        sample("n2", 12.0, a=(9.0,) * 4),  # was not there before
    ]
    found = {(row["node"], row["topic"]): row for row in rates(before, after)}
    assert set(found) == {("n0", "a"), ("n0", "new"), ("n1", "a")}
    assert found["n0", "a"]["messages_in_per_second"] == 100
    assert found["n0", "a"]["bytes_in_per_second"] == 2_000
    assert found["n0", "a"]["bytes_out_per_second"] == 1
    assert found["n0", "a"]["messages_in_total"] == 300
    assert found["n0", "new"]["messages_in_per_second"] == 2
    assert found["n1", "a"]["messages_in_per_second"] == 1
    both, new = summed(found.values(), "topic")
    assert (both["topic"], both["messages_in_per_second"], new["topic"]) == ("a", 101, "new")
    assert "node" not in both


def test_a_node_that_could_not_be_read_has_no_row() -> None:
    lost = Sample("n0", 1.0, {}, {}, "gone")
    whole = sample("n0", 2.0, a=(1.0,) * 4)
    assert rates([lost], [whole]) == rates([whole], [lost]) == []


@pytest.mark.parametrize("secured", [False, True])
async def test_a_node_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    secured: bool,
) -> None:
    authority = Authority() if secured else None
    access = access_text(op={"admin": True, "read": ["*"], "write": ["*"]}) if secured else ""
    config = settings(tmp_path / "node", authority=authority, access=access, http=True)
    async with running(config) as node:
        node.store.create_topic(TopicConfig("t", 1, 1))
        node.store.create_topic(TopicConfig("u", 1, 1))
        options: list[str] = []
        security = Security()
        if authority is not None:
            ca_file = str(authority.write(tmp_path))
            monkeypatch.setenv("TANDEMLOG_TOKEN", token("op"))
            options = ["--ca-file", ca_file]
            security = Security(ca_file=ca_file, token=token("op"))
        run = program(node.endpoints.listen, monkeypatch, capfd)
        async with AsyncProducer(node.endpoints.listen, security=security) as producer:
            for topic in ("t", "t", "u"):
                await (await producer.send(Message(topic, b"x" * 100)))
        arguments = ("stats", "--interval", "0.1", *options)
        code, out, err = await asyncio.to_thread(run, *arguments, "--format", "jsonl")
        assert (code, err) == (0, "")
        found = {row["topic"]: row for row in objects(out)}
        assert found["t"]["messages_in_total"] == 2
        assert found["t"]["bytes_in_total"] > 200
        assert found["u"]["messages_in_per_second"] == 0
        code, out, err = await asyncio.to_thread(run, *arguments, "--topic", "u")
        assert (code, err) == (0, "")
        of_nodes, of_topics = out.split("\n\n")
        assert of_nodes.splitlines()[1].split()[:2] == ["n0", "master"]
        assert [line.split()[0] for line in of_topics.splitlines()] == ["topic", "u"]


async def test_a_node_without_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(settings(tmp_path / "node")) as node:
        run = program(node.endpoints.listen, monkeypatch, capfd)
        assert await asyncio.to_thread(run, "stats") == (
            3,
            "",
            "tandemlog: no node's metrics can be read: n0: it has no HTTP port (http_listen)\n",
        )
