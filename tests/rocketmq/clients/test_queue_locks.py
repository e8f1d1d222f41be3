"""Locks of queues: one owner in a term, and across terms."""

import pytest

from tandemlog_server.rocketmq.clients.queue_locks import (
    GRACE_S,
    LOCK_S,
    Grant,
    QueueLocks,
    TooManyLocksError,
)

Locks = QueueLocks[str]
Q0, Q1 = ("t", 0), ("t", 1)


def test_a_queue_has_one_owner_until_its_lock_ends() -> None:
    locks = Locks()
    assert locks.lock("g", "a", "A", [Q0, Q1], 0.0).queues == (Q0, Q1)
    assert locks.lock("g", "b", "B", [Q0], LOCK_S - 0.1).queues == ()
    assert locks.lock("other", "b", "B", [Q0], 1.0).queues == (Q0,)
    assert locks.lock("g", "a", "A", [Q0], 50.0).queues == (Q0,)
    assert locks.lock("g", "b", "B", [Q0, Q1], LOCK_S).queues == (Q1,)
    assert locks.owner("g", Q0, LOCK_S) == "a"
    assert locks.owner("g", Q1, LOCK_S) == "b"


def test_a_new_owner_is_told_once_it_is_confirmed() -> None:
    locks = Locks()
    first = locks.lock("g", "a", "A", [Q0], 0.0)
    assert first.version
    assert locks.lock("g", "a", "A", [Q0], 1.0) == Grant((Q0,), first.version)
    version, owners = locks.owners("g")
    assert (version, owners) == (first.version, {Q0: "a"})
    second = locks.lock("g", "a", "A", [Q0, Q1], 2.0)
    assert second.version > first.version  # what is being written has not Q1
    locks.confirm("g", version)
    assert locks.lock("g", "a", "A", [Q0], 3.0) == Grant((Q0,))
    assert locks.lock("g", "a", "A", [Q1], 3.0) == Grant((Q1,), second.version)
    locks.confirm("g", locks.owners("g")[0])
    assert locks.lock("g", "a", "A", [Q0, Q1], 4.0) == Grant((Q0, Q1))


def test_a_write_from_before_confirms_nothing_of_a_group_that_began_again() -> None:
    locks = Locks()
    before = locks.lock("g", "a", "A", [Q0], 0.0)
    locks.unlock("g", "a", "A", [Q0])
    again = locks.lock("g", "b", "B", [Q0], 1.0)
    locks.confirm("g", before.version)
    assert not locks.is_confirmed("g", again.version)


def test_an_unlock_counts_if_all_requests_came_by_its_connection() -> None:
    locks = Locks()
    locks.lock("g", "a", "A", [Q0], 0.0)
    locks.lock("g", "a", "A2", [Q0], 1.0)
    for connection in ("A", "A2"):  # either may be one that was delayed
        locks.unlock("g", "a", connection, [Q0])
        assert locks.owner("g", Q0, 2.0) == "a"
    locks.closed("A", 2.0)
    locks.unlock("g", "b", "A2", [Q0])
    locks.unlock("unknown", "a", "A2", [Q0])
    assert locks.owner("g", Q0, 2.0) == "a"
    locks.unlock("g", "a", "A2", [Q0])
    assert locks.owner("g", Q0, 2.0) == ""
    assert locks.lock("g", "b", "B", [Q0], 2.0).queues == (Q0,)


def test_locks_of_a_closed_connection_end_with_the_trust_of_their_client() -> None:
    locks = Locks()
    locks.lock("g", "a", "A", [Q0], 0.0)
    locks.closed("A", 1.0)
    assert locks.lock("g", "b", "B", [Q0], GRACE_S - 0.1).queues == ()
    assert locks.lock("g", "b", "B", [Q0], GRACE_S).queues == (Q0,)


def test_the_next_master_lets_owners_go_on_and_others_wait() -> None:
    locks = Locks()
    locks.begin({"g": {Q0: "a"}}, 100.0)
    assert locks.lock("g", "b", "B", [Q0, Q1], 101.0).queues == (Q1,)  # Q1 was nobody's
    own = locks.lock("g", "a", "A", [Q0], 102.0)
    assert own.queues == (Q0,)
    assert own.version  # not every node that may lead next has this owner
    locks.confirm("g", own.version)
    assert locks.lock("g", "a", "A", [Q0], 103.0) == Grant((Q0,))
    assert locks.lock("g", "b", "B", [Q0], 100.0 + GRACE_S).queues == ()
    locks.begin({"g": {Q0: "a"}}, 200.0)
    assert locks.lock("g", "b", "B", [Q0], 200.0 + GRACE_S).queues == (Q0,)


def test_what_has_ended_is_to_be_written_too() -> None:
    locks = Locks()
    locks.lock("g", "a", "A", [Q0, Q1], 0.0)
    locks.owners("g")
    locks.unlock("g", "a", "A", [Q0])
    assert locks.outdated == {"g"}
    assert locks.owners("g")[1] == {Q1: "a"}
    assert locks.outdated == set()
    locks.expire(LOCK_S)
    assert locks.outdated == {"g"}
    assert locks.owners("g") == (0, {})
    assert locks.count == 0


def test_one_holder_cannot_have_all_locks() -> None:
    locks = Locks(max_locks=8)
    queues = [("t", number) for number in range(8)]
    locks.lock("g", "a", "A", queues[:6], 0.0, "x")
    with pytest.raises(TooManyLocksError, match="'x' has locked 6"):
        locks.lock("g", "a", "A", queues, 0.0, "x")
    assert locks.count == 6
    assert locks.lock("g", "b", "B", queues[6:7], 0.0, "y").queues == (queues[6],)
    assert locks.lock("g", "a", "A", queues[:6], 1.0, "x").queues == tuple(queues[:6])
