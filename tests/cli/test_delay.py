"""`tandemlog delay`: what waits, and what is called back."""

from datetime import timedelta

from helpers.cli_node import (  # noqa: F401 - fixtures
    Run,
    node_of_a_module,
    objects,
    run_of_a_test,
    topic_of_a_test,
)
from tandemlog import Message, Producer
from tandemlog_server.cli.shared.exit_codes import NOT_FOUND
from tandemlog_server.node.node import Node

JSONL = ("--format", "jsonl")


def test_what_waits_is_listed_and_cancelled(run: Run, node: Node, topic: str) -> None:
    with Producer(node.endpoints.listen) as producer:
        sent = [
            producer.send(Message(topic, b"body", queue_id=0), delay=timedelta(hours=hours))
            for hours in (2, 1)
        ]
        later, sooner = (each.result(60) for each in sent)
    code, out, _ = run("delay", "list", topic, *JSONL)
    assert code == 0
    rows = objects(out)
    assert [each["deliver_at_ms"] for each in rows] == [sooner.deliver_at_ms, later.deliver_at_ms]
    assert rows[0]["body_bytes"] == 4
    assert len(objects(run("delay", "list", "--max", "1", *JSONL)[1])) == 1

    handle = rows[0]["recall_handle"]
    assert handle == sooner.recall_handle
    code, out, _ = run("delay", "cancel", handle, "--dry-run", *JSONL)
    assert (code, objects(out)[0]["outcome"]) == (0, "would be cancelled")
    assert len(objects(run("delay", "list", topic, *JSONL)[1])) == 2

    code, out, _ = run("delay", "cancel", handle, later.recall_handle, *JSONL)
    assert (code, [each["outcome"] for each in objects(out)]) == (0, ["cancelled"] * 2)
    code, out, _ = run("delay", "list", topic, *JSONL)
    assert (code, out.strip()) == (0, "")
    code, out, err = run("delay", "cancel", handle, "--dry-run", *JSONL)
    assert code == NOT_FOUND
    assert objects(out)[0]["outcome"] == "not found"
    assert "do not wait" in err


def test_a_topic_that_is_missing_is_named(run: Run) -> None:
    code, _, err = run("delay", "list", "missing")
    assert (code, "there is no topic 'missing'" in err) == (NOT_FOUND, True)


def test_a_handle_that_is_none_is_refused(run: Run) -> None:
    code, _, err = run("delay", "cancel", "nonsense")
    assert code != 0
    assert "recall handle" in err
