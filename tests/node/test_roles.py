"""What a master refuses before it stores anything, and what it says of a doubtful change."""

from types import SimpleNamespace

import pytest

from ha.config import Replication
from node.error_status import RequestRefusedError
from node.roles.master_role import MasterRole
from tandemlog.v1 import broker_pb2, common_pb2

NO_WAIT = broker_pb2.NO_WAIT


class FakeReplication:
    """A master whose slaves take tables or do not."""

    def __init__(self, mode: Replication, *, settles: bool = True) -> None:
        self.config = SimpleNamespace(replication=mode)
        self.settles = settles

    def admission(self) -> str | None:
        return None

    async def table_settled(self, kind: str, timeout_s: float) -> bool:
        return self.settles


def role(
    wrote: int = 0,
    confirmed: int = 0,
    mode: Replication = Replication.SYNC,
    *,
    settles: bool = True,
) -> MasterRole:
    store = SimpleNamespace(
        log=SimpleNamespace(wrote=SimpleNamespace(value=wrote)),
        confirmed=SimpleNamespace(value=confirmed),
    )
    return MasterRole(
        store,  # type: ignore[arg-type]
        FakeReplication(mode, settles=settles),  # type: ignore[arg-type]
        max_unconfirmed_bytes=100,
    )


@pytest.mark.parametrize("durability", [NO_WAIT, broker_pb2.CLUSTER])
def test_log_that_nobody_confirms_is_bounded(durability: int) -> None:
    role(wrote=1099, confirmed=1000).admit(durability)
    with pytest.raises(RequestRefusedError, match=r"put\.max_unconfirmed_bytes is 100") as refused:
        role(wrote=1100, confirmed=1000).admit(durability)
    assert refused.value.code == common_pb2.NOT_IN_SYNC
    assert (refused.value.limit, refused.value.actual) == (100, 100)


def test_a_master_that_waits_for_nobody_has_no_such_bound() -> None:
    role(wrote=1100, mode=Replication.ASYNC).admit(NO_WAIT)


async def test_a_change_that_no_replica_has_taken_in_time_may_be_lost() -> None:
    await role().settle("topics")
    with pytest.raises(
        RequestRefusedError, match="the change of topics is durable on the master"
    ) as unknown:
        await role(settles=False).settle("topics")
    assert unknown.value.code == common_pb2.OUTCOME_UNKNOWN


async def test_a_change_that_too_few_replicas_could_take_is_refused_before_it_is_made() -> None:
    made = role()
    await made.admit_change()
    made._timeout_ms = 0
    made._replication.admission = lambda: "1 in-sync replicas"  # type: ignore[method-assign]
    with pytest.raises(RequestRefusedError, match="1 in-sync replicas") as refused:
        await made.admit_change()
    assert refused.value.code == common_pb2.NOT_IN_SYNC
