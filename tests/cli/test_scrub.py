"""`tandemlog scrub` against a node, which has no other to compare its log with."""

import time

from helpers.cli_node import (  # noqa: F401 - fixtures
    Run,
    node_of_a_module,
    objects,
    run_of_a_test,
)
from tandemlog import Producer
from tandemlog_server.node.node import Node


def rounds_after(run: Run, before: int) -> tuple[int, dict[str, object], str]:
    """Exit code, row and notes once a further round has ended."""
    until = time.monotonic() + 20
    while True:
        code, out, _ = run("scrub", "status", "--format", "jsonl")
        (row,) = objects(out)
        if row["rounds"] > before and row["state"] == "waiting":
            _, _, err = run("scrub", "status")
            return code, row, err
        assert time.monotonic() < until, row


def test_a_round_is_begun_and_shown(run: Run, node: Node) -> None:
    run("topic", "create", "seen")
    with Producer(node.endpoints.listen) as producer:
        producer.send_many("seen", [b"x" * 1_000] * 100)
    end = node.store.flush()
    node.store.reputed.wait(end, 10)
    code, out, err = run("scrub", "now")
    assert (code, out) == (0, "")
    assert "n0: a round through" in err
    code, row, err = rounds_after(run, 0)
    assert code == 0
    assert row["open_blocks"] == row["damaged_blocks"] == 0
    assert row["done_percent"] == 100
    assert "n0:" not in err


def test_what_is_open_is_named_and_is_the_exit_code(run: Run, node: Node) -> None:
    path = node.store.directory / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(2_000)
        file.write(b"!")
    (row,) = objects(run("scrub", "status", "--format", "jsonl")[1])
    run("scrub", "now", "--node", "n0")
    code, row, err = rounds_after(run, row["rounds"])
    assert code == 1
    assert row["open_blocks"] == 1
    assert "no whole copy was found" in err
    code, out, _ = run("check")
    assert code == 1
    assert "no whole copy was found" in out
