"""What a client needs in order to read as a group."""

import pytest

from tandemlog_server.node.access.access_refusals import DeniedError
from tandemlog_server.node.access.caller import Caller, Who
from tandemlog_server.node.access.identities import Identity, Patterns
from tandemlog_server.node.remoting.reads.read_rights import require_reads


def caller(read: list[str], consume: list[str], *, admin: bool = False) -> Caller:
    identity = Identity("app", read=Patterns(read), consume=Patterns(consume), admin=admin)
    return Caller("test:1", who=Who(identity, frozenset()))


@pytest.mark.parametrize(
    "asking",
    [
        Caller("test:1"),
        caller([], [], admin=True),
        caller(["orders"], ["billing"]),
    ],
)
def test_who_may_read_the_topic_as_the_group(asking: Caller) -> None:
    require_reads(asking, "billing", "orders")
    require_reads(asking, "billing", "%RETRY%billing")


@pytest.mark.parametrize(
    ("asking", "topic", "missing"),
    [
        (caller(["orders"], []), "orders", "consume.*billing"),
        (caller([], ["billing"]), "orders", "read.*orders"),
        (caller(["orders"], ["billing"]), "payments", "read.*payments"),
        # the retries of a group are its own, and of no other one
        (caller(["orders"], ["billing"]), "%RETRY%shipping", "read.*%RETRY%shipping"),
        (caller(["*"], []), "%RETRY%billing", "consume.*billing"),
    ],
)
def test_who_may_not_is_told_which_right_is_missing(
    asking: Caller, topic: str, missing: str
) -> None:
    with pytest.raises(DeniedError, match=missing):
        require_reads(asking, "billing", topic)
