"""A changed table is safe once every member of the set in force has taken that version."""

import asyncio
from dataclasses import replace

from fakes.clock import FakeClock
from fakes.master_view import master_view
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.waiters import Waiters
from tandemlog_server.ha.protocol.frames import Ack, Hello
from tandemlog_server.ha.state import InSyncRecord, Member

ME, A = Member("m", "mi"), Member("a", "1")


def group(*members: Member, required: int = 2) -> MasterGroup:
    config = HaConfig("c", "m", mode=Replication.SYNC, min_in_sync=required)
    view = master_view(EpochEntry(3, 0), end=100)
    record = InSyncRecord(3, 1, frozenset({ME, *members}))
    return MasterGroup(config, ME, view, record, 100, FakeClock().monotonic())


def follow(made: MasterGroup, node_id: str, **tables: int) -> None:
    now = 1000.0
    session = made.open(now)
    hello = Hello("c", node_id, "1", epochs=(EpochEntry(3, 0),), max_offset=100, file_size=4096)
    made.receive(session, replace(hello, master_id="m", master_incarnation="mi"), now)
    made.receive(session, Ack(3, "1", 100, 100, tables=tuple(tables.items())), now)


def test_every_member_must_have_taken_it() -> None:
    made = group(A)
    assert not made.tables_held("topics", 3)
    follow(made, "a", topics=2)
    assert not made.tables_held("topics", 3)
    follow(made, "b", topics=3)
    assert not made.tables_held("topics", 3), "b is not in the set"
    follow(made, "a", topics=4)
    assert made.tables_held("topics", 3)
    assert not made.tables_held("groups", 0)


def test_a_set_that_is_too_small_holds_nothing_and_async_waits_for_nobody() -> None:
    made = group()
    assert not made.tables_held("topics", 1)
    assert group(required=1).tables_held("topics", 1)
    made.config = replace(made.config, mode=Replication.ASYNC)
    assert made.tables_held("topics", 1)


def test_nobody_joins_without_the_tables_that_are_promised() -> None:
    made = group()
    made.needed_tables = {"topics": 3}
    follow(made, "a", topics=2)
    assert made.tick(1000.0) is None
    follow(made, "a", topics=3)
    record = made.tick(1000.0)
    assert record is not None
    assert A in record.members


async def test_who_waits_is_told_once_it_is_held_and_that_time_is_over() -> None:
    held: set[tuple[str, int]] = set()
    waiters = Waiters[tuple[str, int]](lambda table: table in held)
    first = asyncio.create_task(waiters.wait(("topics", 1), 30))
    second = asyncio.create_task(waiters.wait(("topics", 2), 30))
    await asyncio.sleep(0)
    waiters.check()
    held.add(("topics", 1))
    waiters.check()
    assert await first
    assert not second.done()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not await waiters.wait(("topics", 2), 0)
    assert await waiters.wait(("topics", 1), 0)


async def test_it_is_known_which_tables_are_waited_for() -> None:
    waiters = Waiters[tuple[str, int]](lambda _: False)
    waiting = asyncio.create_task(waiters.wait(("topics", 1), 30))
    await asyncio.sleep(0)
    assert waiters.keys == [("topics", 1)]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not waiters.keys


def test_a_slave_that_is_away_is_not_waited_for_when_the_master_goes() -> None:
    made = group(A)
    assert made.tables_followed("topics", 3)
    follow(made, "a", topics=2)
    assert not made.tables_followed("topics", 3)
    follow(made, "a", topics=3)
    assert made.tables_followed("topics", 3)
    follow(made, "b", topics=1)
    assert made.tables_followed("topics", 3), "b is not in the set"
