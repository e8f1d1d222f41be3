"""What went wrong in Patroni once, played here: docs/decisions/0031 has the table of all rows."""

import asyncio

import grpc
import pytest

from fakes.election import KEYS, SyncCoordinator, disk
from fakes.fake_coordinator import CoordinatorWorld, Fault
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.coordinator.coordinator_errors import CoordinatorUnavailableError
from tandemlog_server.ha.coordinator.guard import AnswerGuard
from tandemlog_server.ha.coordinator.values import Listing, Put
from tandemlog_server.ha.coordinator.verdicts import Verdict, verdict_of
from tandemlog_server.ha.election import agent as agent_module
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.key_values import REINIT, RequestValue
from tandemlog_server.ha.election.requests import ClusterRequests
from tandemlog_server.ha.election.role_loop import ElectionRules, Own, RoleLoop, Send
from tandemlog_server.ha.election.snapshot import SnapshotBuilder
from tandemlog_server.ha.election.transactions import change_set, force, hand_over, win
from tandemlog_server.ha.state import InSyncRecord

RULES = ElectionRules(Replication.SYNC, required=2)


async def test_patroni_1379_659_operators_are_never_told_of_an_old_state() -> None:
    """The command line acted on what one member still remembered after the quorum was lost. Here
    each question reads the coordinator, and says at which revision; without it there is an error
    and no answer from memory."""
    world = CoordinatorWorld()
    keys, client = SyncCoordinator(world), world.client()
    nodes = keys.found("a", "b", "c")
    requests = ClusterRequests(client, KEYS, 6, 2)
    before = (await requests.read()).snapshot
    keys.txn(hand_over(KEYS, keys.snapshot(), nodes["b"].me, "planned", 1))
    after = (await requests.read()).snapshot
    assert after.record is not None
    assert (after.record.leader, after.revision > before.revision) == (disk("b"), True)
    client.faults.append(Fault.UNREACHABLE)
    with pytest.raises(CoordinatorUnavailableError):
        await requests.read()


@pytest.mark.parametrize("code", [*grpc.StatusCode], ids=lambda code: code.name)
def test_patroni_2379_3407_an_error_that_is_not_known_rejects_nothing(
    code: grpc.StatusCode,
) -> None:
    """An unknown error of etcd was taken for "you do not lead any more". A definite rejection is a
    comparison that failed, and that is no error."""
    said = verdict_of(code, "something that no version has said before")
    allowed = Verdict.REFUSED if code is grpc.StatusCode.UNIMPLEMENTED else Verdict.AMBIGUOUS
    assert said is allowed
    assert verdict_of(code, "etcdserver: no leader") is Verdict.ELSEWHERE


def test_patroni_3318_a_member_that_answers_and_lags_is_not_believed() -> None:
    """Its answers looked fresh, and were of a time before the election."""
    guard = AnswerGuard()
    guard.believe("a:1", pb.ResponseHeader(cluster_id=7, revision=40, raft_term=3))
    behind = pb.ResponseHeader(cluster_id=7, revision=39, raft_term=3)
    assert "went back" in guard.fault("b:1", behind, guard.seen("b:1"), linearizable=True)
    keys = SyncCoordinator()
    nodes = keys.found("a", "b", "c")
    old = keys.snapshot()
    listing = Listing(old.revision, ())
    keys.txn(hand_over(KEYS, old, nodes["b"].me, "planned", 1))
    builder = SnapshotBuilder(KEYS)
    builder.snapshot, builder._revision = keys.snapshot(), keys.snapshot().revision
    assert builder.apply(listing) is builder.snapshot


def test_patroni_3662_who_may_lead_stands_in_one_key() -> None:
    """A tag was changed in one key and the set in another; the leader lost power between the two,
    and no node was eligible any more. Here each change of leader or set is one put of one key."""
    keys = SyncCoordinator()
    nodes = keys.found("a", "b", "c")
    asked = RequestValue("switchover", "b", "r")
    keys.put(KEYS.request, asked, keys.lease())
    seen = keys.snapshot()
    assert seen.record is not None
    smaller = InSyncRecord(1, 2, frozenset({disk("a"), disk("b")}))
    changes = [
        win(KEYS, seen, nodes["b"], required=2, unclean=False, reason="", now_ms=1),
        force(KEYS, seen, nodes["b"], 1),
        hand_over(KEYS, seen, nodes["b"].me, "", 1),
        change_set(KEYS, seen.record, seen.record_revision, smaller),
    ]
    for txn in changes:
        puts = [each.key for each in txn.then if isinstance(each, Put)]
        assert puts.count(KEYS.state) == 1
        assert KEYS.state in [each.key for each in txn.compares]
        assert not any(key.startswith((KEYS.members, KEYS.roster)) for key in puts)


@pytest.mark.parametrize("dropped", [False, True], ids=["before", "after"])
def test_patroni_3662_a_leader_that_dies_while_it_drops_a_node_leaves_one_that_can_lead(
    dropped: bool,
) -> None:
    """The node that is asked to start over is that other key of ours: it takes no right away."""
    keys = SyncCoordinator()
    nodes = keys.found("a", "b", "c")
    keys.put(KEYS.request, RequestValue(REINIT, "b", "r"), keys.lease())
    seen = keys.snapshot()
    assert seen.record is not None
    if dropped:
        smaller = InSyncRecord(1, 2, frozenset({disk("a"), disk("c")}))
        assert keys.txn(change_set(KEYS, seen.record, seen.record_revision, smaller)).succeeded
    keys.end(nodes["a"].lease)
    can_lead = []
    for name in "bc":
        me = nodes[name].me
        loop = RoleLoop(KEYS, RULES)
        own = Own(me, lease=nodes[name].lease, uuid="uuid")
        steps = [loop.decide(keys.snapshot(), own, now, 1, "") for now in (0.0, 10.0)]
        can_lead += [name] if isinstance(steps[-1], Send) else []
    assert can_lead == (["c"] if dropped else ["b", "c"])


async def test_patroni_1684_a_task_of_the_election_that_fails_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unexpected exception ended the loop, and the leader stayed what it was."""
    monkeypatch.setattr(agent_module, "RESTART_S", 0.0)
    again = asyncio.Event()

    async def work() -> None:
        if not runs:
            runs.append(1)
            raise ZeroDivisionError
        again.set()
        await asyncio.Event().wait()

    runs: list[int] = []
    task = asyncio.create_task(ElectionAgent._supervised(None, work))  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        await again.wait()
    task.cancel()


def test_patroni_2779_a_late_acquisition_meets_another_epoch() -> None:
    """The free lock was taken again by a leader that another node had replaced meanwhile: here what
    is compared is the record, not that the lock is free."""
    keys = SyncCoordinator()
    nodes = keys.found("a", "b", "c")
    keys.end(nodes["a"].lease)
    free = keys.snapshot()
    back = keys.join("a")
    late = win(KEYS, free, back, required=2, unclean=False, reason="", now_ms=1)
    first = win(KEYS, free, nodes["b"], required=2, unclean=False, reason="", now_ms=1)
    assert keys.txn(first).succeeded
    keys.end(nodes["b"].lease)
    assert keys.snapshot().leader is None, "the lock is free again"
    assert not keys.txn(late).succeeded
    assert keys.record().leader == disk("b")
