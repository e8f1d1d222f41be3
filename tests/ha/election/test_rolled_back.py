"""Is this still the disk that the record means? One log, and what the cluster had confirmed."""

from dataclasses import replace

import pytest

from fakes.election import record
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.election.key_values import ConfirmedValue, RosterValue
from tandemlog_server.ha.election.role_host import OwnLog
from tandemlog_server.ha.election.rolled_back import confirmed_by, lacks_confirmed, why_rolled_back
from tandemlog_server.ha.election.snapshot import Snapshot

TABLE = EpochTable((EpochEntry(1, 0), EpochEntry(3, 60)))
LOG = OwnLog("1", 3, 3, 100, epochs=TABLE, confirm_offset=90)
SEEN = Snapshot(
    record=record("a", "b", epoch=3),
    roster={"b": RosterValue(4)},
    confirmed=ConfirmedValue(100, 3, 3),
)


def lacks(confirmed: ConfirmedValue | None, **changes: object) -> str:
    held = replace(record("a", "b", epoch=3), **changes)  # type: ignore[arg-type]
    return lacks_confirmed(replace(SEEN, record=held, confirmed=confirmed), 100, TABLE)


@pytest.mark.parametrize(
    "confirmed",
    [
        None,
        ConfirmedValue(0, 0, 3),
        ConfirmedValue(60, 1, 3),
        ConfirmedValue(100, 3, 3),
        ConfirmedValue(100, 0, 3),
    ],
    ids=["nothing told", "nothing confirmed", "an older term", "to the end", "a term unknown"],
)
def test_a_whole_log(confirmed: ConfirmedValue | None) -> None:
    assert not lacks(confirmed)


def test_a_log_that_ends_before_what_was_confirmed() -> None:
    assert "ends at 100, but the cluster had confirmed it up to 101" in lacks(
        ConfirmedValue(101, 3, 3)
    )


@pytest.mark.parametrize("told", [ConfirmedValue(61, 1, 3), ConfirmedValue(60, 2, 3)])
def test_a_log_of_another_history(told: ConfirmedValue) -> None:
    """It is long enough, but its bytes there were given up."""
    assert "is one of epoch" in lacks(told)


def test_bytes_below_the_epoch_table_are_not_judged() -> None:
    """Retention has dropped them, or a store that RocketMQ wrote has no epochs."""
    told = replace(SEEN, confirmed=ConfirmedValue(50, 1, 3))
    assert not lacks_confirmed(told, 100, EpochTable((EpochEntry(3, 60),)))
    assert not lacks_confirmed(told, 100, EpochTable())


@pytest.mark.parametrize(("unclean", "counts"), [(0, True), (2, True), (3, False)])
def test_what_was_confirmed_before_an_unclean_epoch_may_be_gone(unclean: int, counts: bool) -> None:
    assert bool(lacks(ConfirmedValue(500, 2, 2), unclean_epoch=unclean)) is counts


def test_what_a_leader_tells() -> None:
    nothing_told = replace(SEEN, confirmed=None)
    for confirmed, told in ((90, (90, 3)), (60, (60, 1)), (0, (0, 0))):
        log = replace(LOG, confirm_offset=confirmed)
        assert confirmed_by(log, 4, nothing_told) == ConfirmedValue(*told, 4)


def test_a_new_leader_that_knows_of_less_does_not_move_the_mark_back() -> None:
    """It holds what the one before had confirmed, and has not heard of all of it."""
    told = replace(SEEN, confirmed=ConfirmedValue(80, 3, 3))
    assert confirmed_by(replace(LOG, confirm_offset=60), 4, told) == ConfirmedValue(80, 3, 4)


def why(seen: Snapshot = SEEN, *, starts: int = 5, waits: bool = True) -> str:
    return why_rolled_back(seen, "b", starts, replace(LOG, end_offset=99), waits=waits)


def test_a_start_on_a_disk_that_was_put_back() -> None:
    assert why(starts=4) == (
        "by its own count this is start 4, but the cluster has seen its start 4 before"
    )
    assert "ends at 99" in why()


@pytest.mark.parametrize(
    "seen",
    [
        replace(SEEN, record=None),
        replace(SEEN, record=record("a", epoch=3)),
        replace(SEEN, confirmed=ConfirmedValue(99, 3, 3)),
    ],
    ids=["no cluster yet", "it is not in sync", "it holds what is confirmed"],
)
def test_a_start_like_any_other(seen: Snapshot) -> None:
    assert not why(seen)


def test_in_async_replication_a_member_may_lag() -> None:
    assert not why(waits=False)
