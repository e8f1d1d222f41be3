"""A switch that an operator asks for, against an admin client that plays the cluster."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fakes.asked_admin import AskedAdmin
from tandemlog.cluster.elections import (
    ClusterChange,
    Coordination,
    PendingRequest,
)
from tandemlog.cluster.topology import CoordinatorInfo, Topology
from tandemlog_server.cli.cluster.election_requests import Wish, switch
from tandemlog_server.cli.output.tables import Format
from tandemlog_server.cli.shared.exit_codes import REFUSED, UNKNOWN_OUTCOME
from tandemlog_server.cli.shared.failures import CommandError

BEFORE = Coordination(
    answered_by="n0",
    coordinator=CoordinatorInfo(("k:1",), "etcd", 17, 0.0, False),
    cluster_uuid="u",
    epoch=3,
    leader_id="n0",
    leader_present=True,
    reason="first start",
    unclean_epoch=0,
    in_sync=(),
    roster=(),
    request=None,
)
WISH = Wish(ClusterChange.SWITCHOVER, "", dry_run=False, yes=True, timeout_s=5.0, form=Format.TABLE)


class FakeAdmin(AskedAdmin):
    """`after` makes the state that follows the request from its id."""

    def __init__(self, after: Callable[[str], Coordination]) -> None:
        super().__init__()
        self.after = after

    async def coordination(self) -> Coordination:
        return self.after(self.request_id)

    async def cluster(self) -> Topology:
        return Topology(master_id=self.after("").leader_id)


async def switched(admin: FakeAdmin, wish: Wish = WISH) -> None:
    await switch(admin, wish, BEFORE, lambda target: [f"to {target}"])  # type: ignore[arg-type]


async def test_the_new_master_and_its_epoch_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin(lambda _: replace(BEFORE, epoch=4, leader_id="n1"))
    await switched(admin)
    said = capsys.readouterr().out
    assert said.startswith("to n1\n(revision 17, answered by n0)\nn1 is the master, epoch 4, after")
    assert admin.asked == [(ClusterChange.SWITCHOVER, True), (ClusterChange.SWITCHOVER, False)]


async def test_a_dry_run_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin(lambda _: BEFORE)
    await switched(admin, replace(WISH, dry_run=True, form=Format.JSONL))
    assert '"target":"n1","before":"n0","epoch":3' in capsys.readouterr().out
    assert admin.asked == [(ClusterChange.SWITCHOVER, True)]


async def test_what_the_leader_refuses_is_the_answer() -> None:
    def refused(request_id: str) -> Coordination:
        pending = PendingRequest("switchover", "", request_id, "n1 did not have the whole log")
        return replace(BEFORE, request=pending)

    admin = FakeAdmin(refused)
    with pytest.raises(CommandError, match="did not have the whole log") as error:
        await switched(admin)
    assert error.value.exit_code == REFUSED
    assert admin.asked[-1][0] is ClusterChange.WITHDRAW


async def test_another_node_that_was_elected_meanwhile_is_no_success() -> None:
    admin = FakeAdmin(lambda _: replace(BEFORE, epoch=4, leader_id="n2", reason="a closed port"))
    with pytest.raises(CommandError, match="n2 leads epoch 4 instead: a closed port") as error:
        await switched(admin, replace(WISH, target="n1"))
    assert error.value.exit_code == REFUSED
    assert admin.asked[-1][0] is ClusterChange.WITHDRAW


async def test_the_same_node_elected_again_is_no_success() -> None:
    admin = FakeAdmin(lambda _: replace(BEFORE, epoch=4, reason="its lease ended"))
    with pytest.raises(CommandError, match="n0 leads epoch 4 instead: its lease ended"):
        await switched(admin)


async def test_a_switch_to_any_node_may_come_to_another_than_planned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await switched(FakeAdmin(lambda _: replace(BEFORE, epoch=4, leader_id="n2")))
    assert "n2 is the master, epoch 4, after" in capsys.readouterr().out


async def test_a_request_that_takes_too_long_is_withdrawn() -> None:
    def waits(request_id: str) -> Coordination:
        return replace(BEFORE, request=PendingRequest("switchover", "", request_id, ""))

    admin = FakeAdmin(waits)
    with pytest.raises(CommandError, match="withdrawn; n0 leads epoch 3, its lease holds"):
        await switched(admin, replace(WISH, timeout_s=0.01))
    assert admin.asked[-1][0] is ClusterChange.WITHDRAW


async def test_a_request_that_got_no_answer_and_does_not_show_is_unknown() -> None:
    admin = FakeAdmin(lambda _: BEFORE)
    admin.lost = True
    with pytest.raises(CommandError, match="unknown whether") as error:
        await switched(admin)
    assert error.value.exit_code == UNKNOWN_OUTCOME
    admin = FakeAdmin(lambda _: BEFORE)
    with pytest.raises(CommandError, match="ended without an effect"):
        await switched(admin)


async def test_a_request_without_an_answer_that_took_effect_is_done() -> None:
    admin = FakeAdmin(lambda _: replace(BEFORE, epoch=4, leader_id="n1"))
    admin.lost = True
    await switched(admin)
