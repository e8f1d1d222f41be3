"""`tandemlog config` and `connections` against a node that was started from a file."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from helpers.cli_node import Run, objects, program, serve
from tandemlog import Producer
from tandemlog_server.node.node import Node


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    path = folder / "node.toml"
    path.write_text(
        f"""\
listen = "127.0.0.1:0"
http_listen = ""

[store]
directory = "{folder / "store"}"   # a disk of its own
commit_log_file_size = 1048576
queue_file_size = 8000
index_slots = 500
index_entries = 2000
"""
    )
    return path


@pytest.fixture(scope="module")
def node(file: Path) -> Iterator[Node]:
    started: Future[Node] = Future()
    stop: Future[None] = Future()
    thread = threading.Thread(target=serve, args=(Path(), started, stop, file))
    thread.start()
    yield started.result(20)
    stop.set_result(None)
    thread.join(20)


@pytest.fixture
def run(node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return program(node.endpoints.listen, monkeypatch, capfd)


def test_show_says_where_each_value_came_from(run: Run, file: Path) -> None:
    code, out, _ = run("config", "show", "store.index_slots", "put", "--format", "jsonl")
    assert code == 0
    rows = {row["key"]: row for row in objects(out)}
    assert rows["store.index_slots"]["value"] == "500"
    assert rows["store.index_slots"]["source"] == str(file)
    assert rows["put.timeout_ms"]["source"] == "default"
    assert rows["put.timeout_ms"]["change"] == "after a restart"
    assert all(key == "store.index_slots" or key.startswith("put.") for key in rows)
    code, out, _ = run("config", "show", "--changed", "--format", "jsonl")
    keys = {row["key"] for row in objects(out)}
    assert "store.index_slots" in keys
    assert "put.timeout_ms" not in keys


def test_a_live_setting_is_changed_while_the_node_runs(run: Run, node: Node, file: Path) -> None:
    code, out, _ = run("config", "set", "groups.members", "17", "--dry-run")
    assert (code, out) == (0, "n0: would change groups.members from 10000 to 17, at once\n")
    code, out, _ = run("config", "set", "groups.members", "17")
    assert (code, out) == (0, "n0: changed groups.members from 10000 to 17, at once\n")
    run("config", "show")  # behind the change in the node's loop
    assert node.groups.limits.members == 17
    assert "# a disk of its own" in file.read_text()
    run("config", "set", "store.retention.check_interval_ms", "5000")
    run("config", "show")
    intervals = [task.interval_s for task in node.store._keeper.tasks if task.name == "retention"]
    assert intervals == [5.0]


def test_others_need_a_restart_and_say_so(run: Run) -> None:
    code, out, _ = run("config", "set", "put.timeout_ms", "6000", "--format", "jsonl")
    (row,) = objects(out)
    assert (code, row["needs_restart"], row["next"]) == (0, True, "6000")
    code, out, _ = run("config", "show", "put.timeout_ms", "--format", "jsonl")
    assert objects(out)[0]["next"] == "6000"


def test_nonsense_is_one_line(run: Run) -> None:
    for arguments, text in (
        (("log.level", "loud"), "log.level"),
        (("log.levels", "info"), "there is no setting 'log.levels'"),
        (("log.level",), "give a value, or --unset"),
        (("log.level", "info", "--node", "n7"), "there is no node 'n7'"),
    ):
        code, _, err = run("config", "set", *arguments)
        assert code != 0
        assert text in err
        assert len(err.splitlines()) == 1


def test_connections_show_who_is_there(run: Run, node: Node) -> None:
    run("topic", "create", "seen")
    with Producer(node.endpoints.listen) as producer:
        producer.send_many("seen", [b"x"])
        code, out, _ = run("connections", "--format", "jsonl")
    assert code == 0
    rows = objects(out)
    assert any("Append" in row["methods"] and row["streams"] == 1 for row in rows)
    assert any("ListConnections" in row["methods"] for row in rows)


def test_restart_names_what_it_needs(run: Run) -> None:
    code, _, err = run("restart")
    assert code == 2
    assert "--rolling" in err
    code, out, _ = run("restart", "--rolling", "--dry-run", "--command", "restart {node} {host}")
    assert (code, out) == (0, "n0: restart n0 127.0.0.1\n")
