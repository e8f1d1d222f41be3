"""When a node may become the master of the log that it follows, and what it says until then."""

from dataclasses import replace

import pytest

from tandemlog_server.rocketmq.follow.takeover import Look, Presence, obstacle

BROKER = "broker a of cluster shop at h:10911"
REFUSES = Look(
    broker=BROKER,
    presence=Presence.ANSWERS,
    takes_writes=False,
    broker_end=500,
    seen_s=0.0,
    gone_s=0.0,
    known=True,
    compared=True,
    durable=500,
    reputed=500,
    quiet_s=4.0,
)
GONE = replace(REFUSES, presence=Presence.NO_PROCESS, takes_writes=True, gone_s=2.0, seen_s=1.5)
SILENT = replace(GONE, presence=Presence.SILENT, detail="no route")
ANOTHER = replace(REFUSES, presence=Presence.ANOTHER, detail="broker b answers there")


@pytest.mark.parametrize("look", [REFUSES, GONE])
def test_with_everything_here_and_no_writes_it_may(look: Look) -> None:
    assert obstacle(look, force=False) == ""


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (replace(REFUSES, takes_writes=True), "still takes writes: stop its producers"),
        (replace(REFUSES, broker_end=512), "12 bytes of the broker's log are still to come"),
        (replace(REFUSES, quiet_s=0.5), "grew 0.5 s ago, 3 s of rest are due"),
        (replace(GONE, broker_end=512), "ended at 512 when it was last asked, 1.5 s ago: 12 bytes"),
        (replace(GONE, gone_s=0.2), "has just gone"),
        (SILENT, "does not answer, but it may be alive"),
        (replace(REFUSES, known=False), "has not followed"),
        (replace(REFUSES, compared=False), "is not compared with the broker's yet"),
        (replace(GONE, compared=False), "was not compared with that of its last process"),
        (replace(GONE, broker_end=None), "was not compared with that of its last process"),
        (ANOTHER, "broker b answers there. Give --force if broker a of cluster shop"),
        (replace(GONE, reputed=450), "50 bytes of the log are not in the queues yet"),
    ],
)
def test_else_it_says_what_it_waits_for(look: Look, words: str) -> None:
    assert words in obstacle(look, force=False)


@pytest.mark.parametrize(
    "look", [SILENT, ANOTHER, REFUSES, replace(GONE, broker_end=512), replace(GONE, compared=False)]
)
def test_by_force_the_broker_does_not_count(look: Look) -> None:
    assert obstacle(look, force=True) == ""


def test_force_does_not_skip_what_is_this_nodes_own() -> None:
    assert "not followed" in obstacle(replace(SILENT, known=False), force=True)
    assert "not in the queues" in obstacle(replace(SILENT, reputed=0), force=True)
