"""What a master refuses before it stores anything, and what it says of a doubtful change."""

from types import SimpleNamespace

import pytest

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.ha.config import Replication
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.roles.master_role import MasterRole
from tandemlog_server.node.roles.role import CurrentRole

NO_WAIT = broker_pb2.NO_WAIT


class FakeReplication:
    """A master whose slaves take tables or do not."""

    def __init__(self, mode: Replication, *, settles: bool = True) -> None:
        self.config = SimpleNamespace(mode=mode)
        self.settles = settles

    def admission(self) -> str | None:
        return None

    async def table_replicated(
        self, kind: str, timeout_s: float, version: int | None = None
    ) -> bool:
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
    await role().confirm_table("topics")
    with pytest.raises(
        RequestRefusedError, match="the change of topics is durable on the master"
    ) as unknown:
        await role(settles=False).confirm_table("topics")
    assert unknown.value.code == common_pb2.OUTCOME_UNKNOWN


async def test_a_change_that_too_few_replicas_could_take_is_refused_before_it_is_made() -> None:
    made = role()
    await made.admit_change()
    made._timeout_ms = 0
    made._replication.admission = lambda: "1 in-sync replicas"  # type: ignore[method-assign]
    with pytest.raises(RequestRefusedError, match="1 in-sync replicas") as refused:
        await made.admit_change()
    assert refused.value.code == common_pb2.NOT_IN_SYNC


class Elected:
    """A master of epoch 5 in a set of three, as its group sees it."""

    epoch = 5
    config = SimpleNamespace(mode=Replication.SYNC_DEGRADE)

    def __init__(
        self, *, alone: bool = False, led: bool = False, heard: bool = True, stood: bool = False
    ) -> None:
        self.alone, self.led, self.heard, self.stood = alone, led, heard, stood
        self.rounds = 0

    def acts_alone(self) -> bool:
        return self.alone

    def may_confirm(self) -> bool:
        return True

    def stood_still(self) -> bool:
        return self.stood

    def admission(self) -> str | None:
        return None

    def heard_by_all(self) -> bool:
        return self.heard

    async def led_after_now(self, timeout_s: float) -> bool:
        self.rounds += 1
        return self.led


def elected(group: Elected, fault: str = "the lease is over") -> MasterRole:
    store = SimpleNamespace(read_only_reason="")
    return MasterRole(store, group, lease_fault=lambda: fault)  # type: ignore[arg-type]


async def test_a_master_with_a_lease_asks_nobody_whether_it_leads() -> None:
    group = Elected()
    assert await elected(group, "").leads() == 5
    assert group.rounds == 0


async def test_without_a_lease_the_set_says_whether_it_leads() -> None:
    assert await elected(Elected(led=True)).leads() == 5
    with pytest.raises(RequestRefusedError) as refused:
        await elected(Elected(led=False)).leads()
    assert refused.value.code == common_pb2.NOT_IN_SYNC


async def test_a_lease_that_is_renewed_meanwhile_counts() -> None:
    faults = iter(["the lease is over", ""])
    role = MasterRole(
        SimpleNamespace(read_only_reason=""),  # type: ignore[arg-type]
        Elected(),  # type: ignore[arg-type]
        lease_fault=lambda: next(faults),
    )
    assert await role.leads() == 5


async def test_where_roles_are_configured_the_configuration_says_who_leads() -> None:
    group = Elected()
    role = MasterRole(SimpleNamespace(), group)  # type: ignore[arg-type]
    assert await role.leads() == 5
    assert group.rounds == 0


async def test_a_configured_master_that_could_acknowledge_nothing_says_nothing_for_ever() -> None:
    """An operator may have named a node that lacks messages: their producer would be told of a gap,
    number them anew, and have them stored twice by the master that is named after the alarm."""
    group = Elected(led=True)
    group.may_confirm = lambda: False  # type: ignore[method-assign]
    role = MasterRole(SimpleNamespace(), group)  # type: ignore[arg-type]
    assert role.leased_epoch() is None
    with pytest.raises(RequestRefusedError, match="not sure"):
        await role.leads()
    group.may_confirm = lambda: True  # type: ignore[method-assign]
    assert await role.leads() == 5


async def test_an_answer_for_a_role_that_has_ended_meanwhile_is_none() -> None:
    class Slow(Elected):
        async def led_after_now(self, timeout_s: float) -> bool:
            switch.set(elected(Elected()))
            return True

    switch = CurrentRole(elected(Slow()))
    with pytest.raises(RequestRefusedError, match="not sure"):
        await switch.leads()


@pytest.mark.parametrize(
    ("group", "fault", "can_ack"),
    [
        (Elected(), "", True),
        (Elected(heard=True), "the lease is over", True),
        (Elected(heard=False), "the lease is over", False),
        (Elected(heard=False), "", True),
        (Elected(alone=True), "the lease is over", False),
    ],
)
def test_puts_are_acknowledged_without_the_coordinator_by_the_whole_set(
    group: Elected, fault: str, *, can_ack: bool
) -> None:
    assert (elected(group, fault).put_fault() == "") is can_ack
