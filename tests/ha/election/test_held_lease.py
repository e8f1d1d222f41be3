"""Until when a node counts on leading, and to which node it hands over."""

from dataclasses import replace

import pytest

from fakes.election import SyncCoordinator, record, up
from tandemlog_server.ha.coordinator.values import Lease
from tandemlog_server.ha.election.election_config import ElectionConfig
from tandemlog_server.ha.election.held_lease import HeldLease
from tandemlog_server.ha.election.key_values import SWITCHOVER, RequestValue
from tandemlog_server.ha.election.snapshot import Snapshot
from tandemlog_server.ha.election.switchover import (
    HANDOVER_LIMIT_S,
    CannotSwitchError,
    Switching,
    switch_target,
)


def test_a_lease_counts_from_before_it_was_sent() -> None:
    held = HeldLease(margin_s=1.0)
    assert held.remaining_s(0.0) == 0.0
    held.renewed(Lease(7, 6, t_sent=100.0))
    assert held.remaining_s(100.0) == 0.0, "a renewed lease alone does not show who leads"
    held.proved(100.2)
    assert held.remaining_s(100.5) == pytest.approx(4.5)
    assert held.remaining_s(105.0) <= 0
    held.renewed(Lease(7, 6, t_sent=104.0))
    assert held.remaining_s(105.5) <= 0, "Patroni 713: renewed, but not proved since"
    held.proved(104.1)
    assert held.remaining_s(105.5) == pytest.approx(3.5)
    held.lost()
    assert (held.lease_id, held.remaining_s(105.5)) == (0, 0.0)


def test_a_process_that_stood_still_has_no_lease() -> None:
    held = HeldLease(margin_s=1.0)
    held.renewed(Lease(7, 6, t_sent=100.0))
    held.proved(100.0)
    assert held.remaining_s(160.0) < 0


def test_times_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="lease_ttl"):
        ElectionConfig(lease_ttl_s=5)


def cluster() -> Snapshot:
    keys = SyncCoordinator()
    keys.found("a", "b", "c")
    return keys.snapshot()


def asked(target: str = "") -> RequestValue:
    return RequestValue(SWITCHOVER, target, "1")


def with_member(snapshot: Snapshot, name: str, **changes: object) -> Snapshot:
    member = replace(snapshot.members[name], **changes)  # type: ignore[arg-type]
    return replace(snapshot, members={**snapshot.members, name: member})


def test_the_node_that_was_asked_for() -> None:
    assert switch_target(cluster(), asked("b")).node_id == "b"


def test_the_best_node() -> None:
    snapshot = cluster()
    assert switch_target(with_member(snapshot, "b", end_offset=101), asked()).node_id == "b"
    assert switch_target(with_member(snapshot, "b", priority=1), asked()).node_id == "b"
    assert switch_target(with_member(snapshot, "c", obstacle="x"), asked()).node_id == "b"
    assert switch_target(with_member(snapshot, "c", lease=0), asked()).node_id == "b"


@pytest.mark.parametrize(
    ("snapshot", "target", "why"),
    [
        (Snapshot(), "b", "no leader yet"),
        (cluster(), "a", "leads already"),
        (cluster(), "d", "is not up; nodes that are: b, c"),
        (replace(cluster(), record=record("a", "c")), "b", "not in sync"),
        (with_member(cluster(), "b", incarnation="2"), "b", "not in sync"),
        (with_member(cluster(), "b", obstacle="its disk failed"), "b", "its disk failed"),
        (replace(cluster(), record=record("a")), "", "no other node"),
    ],
)
def test_no_switch(snapshot: Snapshot, target: str, why: str) -> None:
    with pytest.raises(CannotSwitchError, match=why):
        switch_target(snapshot, asked(target))


def test_a_switch_waits_for_the_whole_log() -> None:
    switching = Switching(asked("b"), up("b"), 10.0)
    assert not switching.ready(None, 0, 0)
    assert not switching.ready(99, 100, 0)
    assert switching.ready(100, 100, 0)
    assert not switching.too_long(10.0 + HANDOVER_LIMIT_S)
    assert switching.too_long(10.1 + HANDOVER_LIMIT_S)


def test_the_coordinator_ends_a_lease_after_its_holder_has() -> None:
    keys = SyncCoordinator()
    nodes = keys.found("a", "b")
    held = HeldLease(margin_s=1.0)
    held.renewed(Lease(nodes["a"].lease, 6, keys.now))
    held.proved(keys.now)
    began = keys.now
    while keys.snapshot().leader is not None:
        assert keys.now - began < 60
        keys.world.advance(0.1)
    assert held.remaining_s(keys.now) < -0.9
    assert "b" not in keys.snapshot().members
