"""A resync that an operator asks for, against an admin client that plays the cluster."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fakes.asked_admin import AskedAdmin
from tandemlog.cluster.elections import (
    ClusterChange,
    Coordination,
    PendingRequest,
    RosterNode,
)
from tandemlog.cluster.topology import CoordinatorInfo, NodeInfo, Topology
from tandemlog_server.cli.cluster import election_requests
from tandemlog_server.cli.cluster.election_requests import Wish, reinit
from tandemlog_server.cli.output.tables import Format
from tandemlog_server.cli.shared.exit_codes import REFUSED, UNKNOWN_OUTCOME
from tandemlog_server.cli.shared.failures import CommandError

SLAVE = RosterNode(
    node_id="n1", removed=False, starts=1, in_sync=True, why_not_in_sync="", up=True,
    endpoint="n1:1", http_endpoint="", incarnation="old", last_epoch=3, end_offset=100,
    priority=0, obstacle="",
)  # fmt: skip
BEFORE = Coordination(
    answered_by="n0",
    coordinator=CoordinatorInfo(("k:1",), "etcd", 17, 0.0, False),
    cluster_uuid="u",
    epoch=3,
    leader_id="n0",
    leader_present=True,
    reason="first start",
    unclean_epoch=0,
    in_sync=(("n0", "d"), ("n1", "old")),
    roster=(SLAVE,),
    request=None,
)
NEW = replace(SLAVE, incarnation="new", end_offset=120)
WISH = Wish(ClusterChange.REINIT, "n1", dry_run=False, yes=True, timeout_s=5.0, form=Format.TABLE)


class FakeAdmin(AskedAdmin):
    """`after` makes the states that follow the request, from its id, one a look; the last stays."""

    def __init__(self, *after: Callable[[str], Coordination]) -> None:
        super().__init__()
        self.after = [*after]
        self.alarm = ""

    async def coordination(self) -> Coordination:
        if (ClusterChange.REINIT, False) not in self.asked:
            return BEFORE
        now = self.after.pop(0) if len(self.after) > 1 else self.after[0]
        return now(self.request_id)

    async def cluster(self) -> Topology:
        node = NodeInfo(
            node_id="n1", role="slave", endpoint="n1:1", http_endpoint="", state="in-sync",
            epoch=3, in_sync=True, min_offset=0, wrote_offset=100, flushed_offset=100,
            confirm_offset=100, reput_offset=100, lag_bytes=0, lag_seconds=0.0, detail="",
            store_host="", alarm=self.alarm,
        )  # fmt: skip
        return Topology(nodes=(node,), master_id="n0", min_in_sync=2)


def waits(request_id: str) -> Coordination:
    return replace(BEFORE, request=PendingRequest("reinit", "n1", request_id, ""))


def behind(request_id: str) -> Coordination:
    return replace(BEFORE, roster=(replace(NEW, in_sync=False, why_not_in_sync="it catches up"),))


def done(request_id: str) -> Coordination:
    return replace(BEFORE, roster=(NEW,))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_requests, "POLL_S", 0.0)


async def ask(admin: FakeAdmin, wish: Wish = WISH) -> None:
    await reinit(admin, wish)  # type: ignore[arg-type]


async def test_it_waits_until_the_node_is_in_sync_on_its_new_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin(waits, behind, done)
    await ask(admin)
    said = capsys.readouterr().out
    assert said.startswith("n1 sets its log aside (100 bytes)")
    assert "n1 is in sync again, its log ends at 120, after " in said
    assert admin.asked == [(ClusterChange.REINIT, True), (ClusterChange.REINIT, False)]


async def test_a_dry_run_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin(done)
    await ask(admin, replace(WISH, dry_run=True, form=Format.JSONL))
    assert '"action":"reinit","node":"n1","master":"n0"' in capsys.readouterr().out
    assert admin.asked == [(ClusterChange.REINIT, True)]


async def test_an_alarm_needs_force() -> None:
    admin = FakeAdmin(done)
    admin.alarm = "it knows more"
    with pytest.raises(CommandError, match="repeat it with --force") as error:
        await ask(admin)
    assert error.value.exit_code == REFUSED
    assert admin.asked == [(ClusterChange.REINIT, True)]
    await ask(admin, replace(WISH, force=True))


async def test_what_the_node_gives_up_for_is_the_answer() -> None:
    def refused(request_id: str) -> Coordination:
        return replace(BEFORE, request=PendingRequest("reinit", "n1", request_id, "no disk"))

    admin = FakeAdmin(refused)
    with pytest.raises(CommandError, match="no disk") as error:
        await ask(admin)
    assert error.value.exit_code == REFUSED
    assert admin.asked[-1][0] is ClusterChange.WITHDRAW


async def test_what_does_not_begin_in_time_is_withdrawn() -> None:
    admin = FakeAdmin(waits)
    with pytest.raises(CommandError, match="withdrawn: n1 is still in the in-sync set") as error:
        await ask(admin, replace(WISH, timeout_s=0.01))
    assert error.value.exit_code == REFUSED
    assert admin.asked[-1][0] is ClusterChange.WITHDRAW


async def test_what_has_begun_continues() -> None:
    admin = FakeAdmin(behind)
    with pytest.raises(CommandError, match="it continues, `tandemlog topology`") as error:
        await ask(admin, replace(WISH, timeout_s=0.01))
    assert error.value.exit_code == UNKNOWN_OUTCOME


async def test_a_request_that_is_gone_had_no_effect_or_an_unknown_one() -> None:
    admin = FakeAdmin(lambda _: BEFORE)
    with pytest.raises(CommandError, match="ended without an effect") as error:
        await ask(admin)
    assert error.value.exit_code == REFUSED
    admin = FakeAdmin(lambda _: BEFORE)
    admin.lost = True
    with pytest.raises(CommandError, match="unknown whether") as error:
        await ask(admin)
    assert error.value.exit_code == UNKNOWN_OUTCOME
    admin = FakeAdmin(done)
    admin.lost = True
    await ask(admin)
