"""Rules of the embedded coordinator that a random run does not reach."""

import pytest

from fakes.coordinator_machines import EMPTY, MemoryDisk, delete, get, new_machine, put, txn
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.node.embedded_coordinator.coordinator_refusals import RefusedError
from tandemlog_server.node.embedded_coordinator.state_machine import StateMachine


def read(machine: StateMachine, now: float = 0.0, **request: object) -> list[bytes]:
    asked = pb.RangeRequest(**{"key": b"\0", "range_end": b"\0", **request})  # type: ignore[arg-type]
    return [kv.key for kv in machine.range(asked, now).kvs]


def grant(machine: StateMachine, ttl_s: int, now: float = 0.0) -> int:
    return int(machine.lease_grant(pb.LeaseGrantRequest(TTL=ttl_s), now).ID)


def pass_time(machine: StateMachine, start: float, end: float) -> None:
    """As the ticks of the server do, without any of them at `end` itself."""
    now = start
    while now < end - 0.1:
        now += 0.1
        machine.advance(now)


# ---- leases


def test_a_lease_ends_at_its_time_and_takes_its_keys_at_one_revision() -> None:
    machine = new_machine()
    lease = grant(machine, 2)
    machine.txn(txn(put(b"a", lease=lease), put(b"b", lease=lease), put(b"c")), 0.0)
    pass_time(machine, 0.0, 2.0)
    assert read(machine, 1.999) == [b"a", b"b", b"c"]
    assert read(machine, 2.0) == [b"c"]
    assert machine.revision == 3
    assert [row.revision for row in machine.versions.events(3, 9)] == [3, 3]


def test_a_renewed_lease_has_its_whole_time_again() -> None:
    machine = new_machine()
    lease = grant(machine, 2)
    pass_time(machine, 0.0, 1.5)
    assert machine.lease_keep_alive(pb.LeaseKeepAliveRequest(ID=lease), 1.5).TTL == 2
    pass_time(machine, 1.5, 3.4)
    assert machine.lease_keep_alive(pb.LeaseKeepAliveRequest(ID=lease), 3.4).TTL == 2
    pass_time(machine, 3.4, 5.4)
    assert machine.lease_keep_alive(pb.LeaseKeepAliveRequest(ID=lease), 5.4).TTL == 0


def test_each_lease_ends_at_a_revision_of_its_own() -> None:
    machine = new_machine()
    for key in (b"a", b"b"):
        machine.txn(txn(put(key, lease=grant(machine, 1))), 0.0)
    pass_time(machine, 0.0, 1.0)
    machine.advance(1.0)
    assert [row.revision for row in machine.versions.events(4, 9)] == [4, 5]


def test_a_key_hangs_on_its_last_lease_alone() -> None:
    machine = new_machine()
    first, second = grant(machine, 5), grant(machine, 5)
    machine.txn(txn(put(b"a", lease=first)), 0.0)
    machine.txn(txn(put(b"a", lease=second)), 0.0)
    machine.lease_revoke(pb.LeaseRevokeRequest(ID=first), 0.0)
    assert read(machine) == [b"a"]
    machine.txn(txn(put(b"a")), 0.0)
    machine.lease_revoke(pb.LeaseRevokeRequest(ID=second), 0.0)
    assert read(machine) == [b"a"]


def test_after_a_restart_every_lease_has_its_whole_time_again() -> None:
    machine, disk = new_machine(), MemoryDisk()
    lease = grant(machine, 3)
    machine.txn(txn(put(b"a", lease=lease)), 0.0)
    disk.commit(machine.pop_changes())
    restarted = new_machine(disk.saved, now=100.0)
    pass_time(restarted, 100.0, 103.0)
    assert read(restarted, 102.95) == [b"a"]
    assert read(restarted, 103.0) == []


def test_a_time_without_us_counts_against_nobody() -> None:
    """Whoever holds a lease could not renew it while this process was paused."""
    machine = new_machine()
    lease = grant(machine, 2)
    machine.txn(txn(put(b"a", lease=lease)), 0.0)
    pass_time(machine, 0.0, 1.5)
    assert read(machine, 60.0) == [b"a"]
    pass_time(machine, 60.0, 62.0)
    assert read(machine, 62.0) == []


def test_time_to_live_of_a_lease() -> None:
    machine = new_machine()
    lease = grant(machine, 9)
    machine.txn(txn(put(b"b", lease=lease), put(b"a", lease=lease)), 0.0)
    pass_time(machine, 0.0, 0.9)
    answer = machine.lease_time_to_live(pb.LeaseTimeToLiveRequest(ID=lease, keys=True), 0.9)
    assert (answer.TTL, answer.grantedTTL, list(answer.keys)) == (8, 9, [b"a", b"b"])
    assert machine.lease_time_to_live(pb.LeaseTimeToLiveRequest(ID=5), 0.9).TTL == -1


# ---- what the answers of a read may be asked for


def test_sorting_limits_and_filters_of_a_read() -> None:
    machine = new_machine()
    for key, value in ((b"b", b"1"), (b"a", b"3"), (b"c", b"2")):
        machine.txn(txn(put(key, value)), 0.0)
    down = pb.RangeRequest.DESCEND
    by_value = pb.RangeRequest.VALUE
    assert read(machine, sort_order=down) == [b"c", b"b", b"a"]
    assert read(machine, sort_target=by_value) == [b"b", b"c", b"a"]
    assert read(machine, min_mod_revision=3) == [b"a", b"c"]
    assert read(machine, max_create_revision=3) == [b"a", b"b"]
    limited = machine.range(pb.RangeRequest(key=b"a", range_end=b"z", limit=2), 0.0)
    assert (len(limited.kvs), limited.more, limited.count) == (2, True, 3)
    counted = machine.range(pb.RangeRequest(key=b"a", range_end=b"z", count_only=True), 0.0)
    assert (len(counted.kvs), counted.count) == (0, 3)
    only = machine.range(pb.RangeRequest(key=b"a", keys_only=True), 0.0)
    assert only.kvs[0].value == b""


def test_previous_values() -> None:
    machine = new_machine()
    first = machine.put(pb.PutRequest(key=b"a", value=b"1", prev_kv=True), 0.0)
    assert not first.HasField("prev_kv")
    second = machine.put(pb.PutRequest(key=b"a", value=b"2", prev_kv=True), 0.0)
    assert second.prev_kv.value == b"1"
    gone = machine.delete_range(pb.DeleteRangeRequest(key=b"a", prev_kv=True), 0.0)
    assert [kv.value for kv in gone.prev_kvs] == [b"2"]


def test_a_comparison_may_be_for_a_range() -> None:
    machine = new_machine()
    machine.txn(txn(put(b"a", b"1"), put(b"b", b"2")), 0.0)
    for value, holds in ((b"3", True), (b"2", False)):
        compare = pb.Compare(
            key=b"a", range_end=b"z", target=pb.Compare.VALUE, result=pb.Compare.LESS, value=value
        )
        assert machine.txn(pb.TxnRequest(compare=[compare]), 0.0).succeeded is holds


# ---- refusals: by name, and nothing is changed


@pytest.mark.parametrize(
    ("request_", "code", "named"),
    [
        (txn(put(b"")), "INVALID_ARGUMENT", "key is not provided"),
        (txn(get(b"")), "INVALID_ARGUMENT", "key is not provided"),
        (txn(delete(b"")), "INVALID_ARGUMENT", "key is not provided"),
        (txn(put(b"a"), put(b"a")), "INVALID_ARGUMENT", "duplicate key"),
        (txn(delete(b"a", b"c"), put(b"b")), "INVALID_ARGUMENT", "duplicate key"),
        (txn(put(b"a"), pb.RequestOp()), "INVALID_ARGUMENT", "empty"),
        (
            txn(put(b"a"), pb.RequestOp(request_txn=pb.TxnRequest())),
            "INVALID_ARGUMENT",
            "transaction inside",
        ),
        (txn(put(b"a"), put(b"b", lease=77)), "NOT_FOUND", "requested lease not found"),
        (txn(put(b"a"), get(b"x", revision=99)), "OUT_OF_RANGE", "future revision"),
        (txn(put(b"a"), get(b"x", revision=1)), "OUT_OF_RANGE", "compacted"),
        (txn(put(b"a"), put(b"k" * 11)), "INVALID_ARGUMENT", "bytes of a key: 11"),
        (txn(put(b"a"), put(b"b", b"v" * 31)), "INVALID_ARGUMENT", "bytes of a value: 31"),
        (txn(*(get(b"a") for _ in range(5))), "INVALID_ARGUMENT", "too many operations"),
        (txn(delete(b"a", b"z"), get(b"a", b"z")), "INVALID_ARGUMENT", "goes through: 4"),
        (txn(put(b"a"), put(b"b"), put(b"c")), "RESOURCE_EXHAUSTED", "keys: 5"),
        (txn(put(b"a", b"v" * 30)), "RESOURCE_EXHAUSTED", "bytes of all keys and values"),
        (txn(put(b"a", b"v"), *[get(b"x")] * 3), "RESOURCE_EXHAUSTED", "bytes of an answer"),
    ],
)
def test_what_is_refused_changes_nothing(request_: pb.TxnRequest, code: str, named: str) -> None:
    machine = new_machine(
        key_bytes=10,
        value_bytes=30,
        operations=4,
        txn_keys=3,
        keys=3,
        live_bytes=40,
        answer_bytes=50,
    )
    machine.txn(txn(put(b"x", b"v" * 15)), 0.0)
    machine.txn(txn(put(b"y", b"v")), 0.0)
    machine.compact(pb.CompactionRequest(revision=2), 0.0)
    machine.pop_changes()
    with pytest.raises(RefusedError, match=named) as refused:
        machine.txn(request_, 0.0)
    assert refused.value.code == code
    assert machine.pop_changes().empty
    assert read(machine) == [b"x", b"y"]


def test_refusals_of_leases() -> None:
    machine = new_machine(leases=1, lease_ttl_s=60)
    with pytest.raises(RefusedError, match="seconds of a lease: 61, the limit is 60"):
        grant(machine, 61)
    lease = grant(machine, 0)
    assert machine.leases.table[lease].ttl_s == 1
    with pytest.raises(RefusedError, match="leases: 1, the limit is 1"):
        grant(machine, 5)
    with pytest.raises(RefusedError, match="already exists"):
        machine.lease_grant(pb.LeaseGrantRequest(ID=lease, TTL=5), 0.0)
    with pytest.raises(RefusedError, match="not found"):
        machine.lease_revoke(pb.LeaseRevokeRequest(ID=9), 0.0)
    with pytest.raises(RefusedError, match="not negative"):
        machine.lease_grant(pb.LeaseGrantRequest(ID=-9, TTL=5), 0.0)


def test_history_is_bounded_and_the_present_stays() -> None:
    machine, disk = new_machine(history_rows=10), MemoryDisk(EMPTY)
    machine.txn(txn(put(b"first")), 0.0)
    for number in range(100):
        machine.txn(txn(put(b"k%d" % (number % 3), b"%d" % number)), 0.0)
        disk.commit(machine.pop_changes())
        assert len(machine.versions.log) <= 10
    assert read(machine) == [b"first", b"k0", b"k1", b"k2"]
    assert len(disk.saved.rows) <= 14
    assert read(new_machine(disk.saved)) == [b"first", b"k0", b"k1", b"k2"]


def test_history_is_bounded_in_bytes() -> None:
    machine = new_machine(history_bytes=1_000)
    for number in range(50):
        machine.txn(txn(put(b"k", b"%099d" % number)), 0.0)
        assert machine.versions.log_bytes <= 1_000
    assert machine.versions.log_bytes == sum(row.size for row in machine.versions.log)


def test_deleted_keys_leave_nothing_behind_a_compaction() -> None:
    machine, disk = new_machine(), MemoryDisk()
    for number in range(20):
        machine.txn(txn(put(b"k%d" % number)), 0.0)
    machine.txn(txn(delete(b"k", b"l")), 0.0)
    machine.compact(pb.CompactionRequest(revision=machine.revision), 0.0)
    disk.commit(machine.pop_changes())
    assert disk.saved.rows == ()
    assert new_machine(disk.saved).revision == machine.revision


def test_time_in_which_the_coordinator_stood_ends_no_lease() -> None:
    """Renewals that came meanwhile are read after it."""
    machine = new_machine()
    lease = grant(machine, 2)
    pass_time(machine, 0.0, 1.9)
    machine.advance(2.7)
    assert machine.lease_keep_alive(pb.LeaseKeepAliveRequest(ID=lease), 2.75).TTL == 2


def test_a_lease_that_is_not_renewed_ends_though_the_coordinator_stood() -> None:
    machine = new_machine()
    grant(machine, 2)
    pass_time(machine, 0.0, 1.0)
    machine.advance(1.9)
    pass_time(machine, 1.9, 3.2)
    assert not machine.leases.table
