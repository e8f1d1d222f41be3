"""The in-sync set at a coordinator that loses, delays and executes late."""

import pytest

from fakes.election import KEYS, SyncCoordinator, disk, record
from fakes.fake_coordinator import CoordinatorWorld, FakeCoordinator, Fault
from tandemlog_server.ha.election.elected_keeper import ElectedKeeper
from tandemlog_server.ha.election.transactions import Candidate, hold_again, win
from tandemlog_server.ha.master.record_keeper import DeposedError
from tandemlog_server.ha.state import InSyncRecord

SMALLER = InSyncRecord(1, 2, frozenset({disk("a"), disk("b")}), known=frozenset("abc"))


class Term:
    """Epoch 1 of a, with b and c in sync."""

    def __init__(self) -> None:
        self.world = CoordinatorWorld()
        self.keys = SyncCoordinator(self.world)
        self.nodes = self.keys.found("a", "b", "c")
        self.client: FakeCoordinator = self.world.client()
        self.keeper = ElectedKeeper(
            self.client, KEYS, self.keys.record(), self.keys.snapshot().record_revision
        )

    def elect(self, name: str) -> None:
        snapshot = self.keys.snapshot()
        candidate: Candidate = self.nodes[name]
        txn = win(KEYS, snapshot, candidate, required=2, unclean=False, reason="t", now_ms=1)
        assert self.keys.txn(txn).succeeded


@pytest.fixture
def term() -> Term:
    return Term()


async def test_recorded(term: Term) -> None:
    assert await term.keeper.record(SMALLER)
    assert term.keys.record().in_sync == SMALLER.members
    assert term.keys.record().known == SMALLER.known
    following = InSyncRecord(1, 3, record("a", "b", "c").in_sync)
    assert await term.keeper.record(following), "it compares the revision of the one before"
    assert term.keys.record().version == 3


async def test_a_lost_request_is_repeated(term: Term) -> None:
    """The record is unchanged, which does not prove that it stays so."""
    term.client.faults.append(Fault.LOST_REQUEST)
    assert not await term.keeper.record(SMALLER)
    assert await term.keeper.record(SMALLER)
    assert term.keys.record().version == 2


async def test_a_lost_answer_is_read(term: Term) -> None:
    term.client.faults.append(Fault.LOST_ANSWER)
    assert await term.keeper.record(SMALLER)
    assert term.keys.record().version == 2


async def test_a_lost_answer_that_cannot_be_read_is_unknown(term: Term) -> None:
    term.client.faults += [Fault.LOST_ANSWER, Fault.UNREACHABLE]
    assert not await term.keeper.record(SMALLER)
    assert await term.keeper.record(SMALLER), "not executed again, but found"
    assert term.keys.record().version == 2


async def test_an_unchanged_read_leaves_the_outcome_unknown(term: Term) -> None:
    term.client.faults.append(Fault.DELAYED)
    assert not await term.keeper.record(SMALLER)
    # its transaction, its read; the next transaction
    term.client.faults += [Fault.UNREACHABLE, None, Fault.LOST_REQUEST]
    assert not await term.keeper.record(SMALLER)
    assert not await term.keeper.record(SMALLER)
    assert term.keeper.latest.version == 1
    term.world.deliver()
    assert term.keys.record().version == 2
    assert await term.keeper.record(SMALLER)


async def test_of_a_delayed_one_and_its_repetition_one_is_executed(term: Term) -> None:
    term.client.faults.append(Fault.DELAYED)
    assert not await term.keeper.record(SMALLER)
    assert await term.keeper.record(SMALLER)
    revision = term.keys.snapshot().record_revision
    term.world.deliver()
    assert term.keys.snapshot().record_revision == revision


@pytest.mark.parametrize("fault", [None, Fault.LOST_REQUEST, Fault.DELAYED, Fault.LOST_ANSWER])
async def test_a_replaced_leader_is_told(term: Term, fault: Fault | None) -> None:
    term.elect("b")
    term.client.faults.append(fault)
    with pytest.raises(DeposedError, match="b leads epoch 2"):
        await term.keeper.record(SMALLER)
    term.world.deliver()
    assert term.keys.record().epoch == 2


async def test_a_change_that_was_delayed_past_an_election(term: Term) -> None:
    term.client.faults.append(Fault.DELAYED)
    assert not await term.keeper.record(SMALLER)
    term.elect("c")
    term.world.deliver()
    assert term.keys.record().in_sync == {disk("b"), disk("c")}
    with pytest.raises(DeposedError):
        await term.keeper.record(SMALLER)


async def test_away_is_not_deposed(term: Term) -> None:
    """Lesson of Patroni 3403, 3572: only a record that names another leader ends a term."""
    term.client.reachable = False
    assert not await term.keeper.record(SMALLER)
    term.client.reachable = True
    term.keys.put(KEYS.state, b"?")
    assert not await term.keeper.record(SMALLER)
    term.keys.delete(KEYS.state)
    assert not await term.keeper.record(SMALLER)


async def test_a_key_that_was_held_again_leaves_the_record_alone(term: Term) -> None:
    term.keys.end(term.nodes["a"].lease)
    back = term.keys.join("a")
    assert term.keys.txn(hold_again(KEYS, term.keys.snapshot(), back)).succeeded
    assert await term.keeper.record(SMALLER)
