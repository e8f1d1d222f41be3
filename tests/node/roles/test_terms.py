"""What a node is, begun and ended in one place: whatever fails or is given up ends all it began."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from fakes.clock import FakeClock
from fakes.replicas import Replica, eventually
from tandemlog_server.ha import intake
from tandemlog_server.ha.config import Role
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.key_values import LeaderValue
from tandemlog_server.ha.errors import StateFileError
from tandemlog_server.ha.master import replication_master
from tandemlog_server.ha.master.record_keeper import LocalKeeper
from tandemlog_server.ha.master.term import WonTerm
from tandemlog_server.ha.state import Member
from tandemlog_server.node.cluster_membership import ConfiguredRole
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.process.tasks import cancelled
from tandemlog_server.node.roles import elected_roles
from tandemlog_server.node.roles import terms as terms_module
from tandemlog_server.node.roles.elected_roles import ElectedRoles
from tandemlog_server.node.roles.following_roles import FollowingRoles
from tandemlog_server.node.roles.master_role import MasterRole
from tandemlog_server.node.roles.relay_role import RelayRole
from tandemlog_server.node.roles.slave_role import SlaveRole, WaitingRole
from tandemlog_server.node.roles.terms import Terms
from tandemlog_server.node.settings.sections import FollowingSection, PutSection
from tandemlog_server.rocketmq.follow.address import parse_address
from tandemlog_server.storage.errors import DiskFullError, StoreReadOnlyError
from tandemlog_server.storage.metadata.topics import TopicConfig


@dataclass
class Bench:
    """A node's store and its terms, without services."""

    replica: Replica
    terms: Terms
    brokers: Mock
    fatal: list[BaseException]
    pools: list[ThreadPoolExecutor]
    """Of what the terms began: another test's node in this process has such threads too."""

    def begun(self) -> list[str]:
        """What is left of a role: threads, tasks, listeners, a store that takes puts."""
        threads = [
            thread.name for pool in self.pools for thread in pool._threads if thread.is_alive()
        ]
        tasks = [each.get_name() for each in asyncio.all_tasks()]
        left = threads + [name for name in tasks if name.startswith("replication")]
        if self.replica.store.writable:
            left.append("the store takes puts")
        if self.terms.running is not None:
            left.append("running")
        return left


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    pools: list[ThreadPoolExecutor] = []

    def pool(*args: Any, **options: Any) -> ThreadPoolExecutor:
        pools.append(ThreadPoolExecutor(*args, **options))
        return pools[-1]

    for module in (replication_master, intake):
        monkeypatch.setattr(module, "ThreadPoolExecutor", pool)
    replica = Replica(tmp_path, "n")
    await replica.open()
    replica.store.topics.create(TopicConfig("T", 4, 4), 1)
    fatal: list[BaseException] = []
    brokers = Mock(begin=AsyncMock(), end=AsyncMock())
    terms = Terms(replica.store, replica.config, FakeClock(), brokers, PutSection(), fatal.append)
    yield Bench(replica, terms, brokers, fatal, pools)
    await terms.close()
    await asyncio.to_thread(replica.store.close)


class Blocked:
    """A call that begins, and goes on when it is let go."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.begun.set()
        assert self.go_on.wait(20)
        return self.call(*arguments)


async def test_a_configured_master_begins_and_ends(bench: Bench) -> None:
    replica, terms = bench.replica, bench.terms
    changes: list[bool] = []
    terms.on_change = lambda: changes.append(terms.role.epoch() is None)
    terms.config = replace(terms.config, role=Role.MASTER)
    role = ConfiguredRole(terms)
    await role.prepare()
    role.start()
    assert isinstance(terms.role, MasterRole)
    assert terms.role.epoch() == 1
    replica.put()
    order: list[str] = []
    bench.brokers.end.side_effect = lambda: order.append(
        f"brokers, epoch={terms.role.epoch()}, puts={replica.store.writable}"
    )
    await role.close()
    assert order == ["brokers, epoch=None, puts=True"], "fenced first, then cut off, then flushed"
    assert bench.begun() == []
    assert replica.store.log.flushed.value == replica.store.log.wrote.value
    with pytest.raises(StoreReadOnlyError):
        replica.put()
    assert changes == [False, True]
    assert [row.node_id for row in role.members()] == [replica.config.node_id]
    await role.close()


async def test_a_slave_says_its_master_before_it_takes_log(bench: Bench) -> None:
    terms = bench.terms
    slave = terms.follow("127.0.0.1:1")
    terms.serve(slave.servicer)
    assert isinstance(terms.role, SlaveRole)
    with pytest.raises(RequestRefusedError, match=r"127\.0\.0\.1:1") as refused:
        terms.role.require_master("ask")
    assert refused.value.hint == "127.0.0.1:1"
    terms.run_slave()
    await eventually(lambda: bool(slave.state.fault))
    await terms.wait("there is no leader")
    assert bench.begun() == []
    assert terms.state is not None, "what the slave remembered stays"


async def test_a_slave_that_only_an_operator_can_mend_is_told_and_can_be_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slave = bench.terms.follow("127.0.0.1:1")
    problem = StateFileError("of another node")
    monkeypatch.setattr(slave._state_file, "load", Mock(side_effect=problem))
    bench.terms.run_slave()
    await eventually(lambda: bench.fatal == [problem])
    await bench.terms.wait("stopping")
    assert bench.begun() == []


@pytest.mark.parametrize("at", ["epochs", "tables"])
async def test_a_term_that_cannot_begin_leaves_nothing_and_the_next_one_may(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A full disk, before the store is a master's and after."""
    store, full = bench.replica.store, DiskFullError("the disk is full")
    with monkeypatch.context() as disk:
        if at == "epochs":
            disk.setattr(store.epochs, "append", Mock(side_effect=full))
        else:
            disk.setattr(
                "tandemlog_server.ha.master.metadata_sync.MetadataSource.refresh",
                Mock(side_effect=full),
            )
        with pytest.raises(DiskFullError):
            await bench.terms.lead()
    assert bench.begun() == []
    assert isinstance(bench.terms.role, WaitingRole)
    await bench.terms.lead()
    assert store.writable
    assert bench.terms.role.epoch() is not None


async def test_a_stop_during_a_begin_waits_for_its_thread_and_takes_back_what_it_did(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Blocked(bench.replica.store.epochs.append)
    monkeypatch.setattr(bench.replica.store.epochs, "append", append)
    beginning = asyncio.create_task(bench.terms.lead())
    await eventually(append.begun.is_set)
    beginning.cancel()
    asyncio.get_running_loop().call_later(0.2, append.go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await beginning
    assert append.go_on.is_set(), "the store was being made a master's"
    assert bench.begun() == []


async def test_an_end_runs_to_its_end_though_its_caller_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.terms.lead()
    bench.replica.put()
    flush = Blocked(bench.replica.store.flush)
    monkeypatch.setattr(bench.replica.store, "flush", flush)
    ending = asyncio.create_task(bench.terms.wait("another node leads"))
    await eventually(flush.begun.is_set)
    assert bench.terms.role.epoch() is None
    ending.cancel()
    asyncio.get_running_loop().call_later(0.2, flush.go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert bench.begun() == []


async def test_an_end_that_fails_is_continued_by_the_next_one(bench: Bench) -> None:
    await bench.terms.lead()
    bench.brokers.end.side_effect = OSError("a second fault")
    with pytest.raises(OSError, match="a second fault"):
        await bench.terms.wait("another node leads")
    assert bench.terms.role.epoch() is None
    assert bench.begun(), "something is left to be ended"
    bench.brokers.end.side_effect = None
    await bench.terms.wait("another node leads")
    assert bench.begun() == []


async def elected(bench: Bench) -> tuple[ElectedRoles, WonTerm]:
    roles = ElectedRoles(bench.terms)
    agent = Mock(spec=ElectionAgent, losses=Mock())
    agent.lease_fault.return_value = ""
    roles.agent = agent
    await roles.prepare()
    me = Member(roles.state.node_id, roles.state.incarnation)
    return roles, WonTerm(1, 1, frozenset({me}), frozenset({me.node_id}))


async def test_a_node_that_stops_while_it_begins_to_lead_gives_its_lease_back_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles, won = await elected(bench)
    append = Blocked(bench.replica.store.epochs.append)
    monkeypatch.setattr(bench.replica.store.epochs, "append", append)
    agent: Any = roles.agent
    agent.run = partial(roles.lead, won, LocalKeeper(), "")
    roles.start()
    await eventually(append.begun.is_set)
    asyncio.get_running_loop().call_later(0.2, append.go_on.set)
    await roles.close()
    await roles.close()
    agent.resign.assert_awaited_once()
    assert bench.begun() == []
    assert roles.terms_won == 0


async def test_a_stop_waits_for_a_log_that_is_set_aside(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the store would be closed below the thread that moves its files."""
    roles, _ = await elected(bench)
    aside = Blocked(lambda *_: None)
    monkeypatch.setattr(elected_roles, "set_log_aside", aside)
    agent: Any = roles.agent
    agent.run = partial(roles.start_over, "it lacks the begin", 1)
    roles.start()
    await eventually(aside.begun.is_set)
    asyncio.get_running_loop().call_later(0.2, aside.go_on.set)
    await roles.close()
    assert aside.go_on.is_set(), "the thread was still at it"


async def test_a_follower_gets_a_role_though_the_end_of_the_last_term_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = FollowingRoles(bench.terms, parse_address("rocketmq://127.0.0.1:1"), FollowingSection())
    await roles.prepare()
    with monkeypatch.context() as broken:
        broken.setattr(terms_module, "end_term", Mock(side_effect=OSError("a second fault")))
        with pytest.raises(OSError, match="a second fault"):
            await roles.rebuild(lambda: None)
    assert bench.terms.role.epoch() is None
    await roles.lead()
    assert isinstance(bench.terms.role, RelayRole)
    await roles.close()
    assert bench.begun() == []


async def test_a_lease_that_is_lost_while_its_term_begins_acknowledges_nothing(
    bench: Bench,
) -> None:
    roles, won = await elected(bench)
    agent: Any = roles.agent
    agent.lease_fault.return_value = "the lease is over"
    await roles.lead(won, LocalKeeper(), "")
    assert bench.terms.role.epoch() is None, "it acts alone"
    with pytest.raises(RequestRefusedError, match="the lease is over"):
        bench.terms.role.admit(0)
    roles.fence("another node leads")
    await roles.follow(LeaderValue("m", "s", 2, "127.0.0.1:1"), 0, "")
    assert isinstance(bench.terms.role, SlaveRole)
    assert not bench.replica.store.writable
    await roles.close()
    assert bench.begun() == []


async def test_a_stop_that_is_given_up_during_a_cut_leaves_it_to_the_next_one(
    bench: Bench,
) -> None:
    """Else the store would be closed while a thread cuts its log, and a term begin behind it."""
    roles = FollowingRoles(bench.terms, parse_address("rocketmq://127.0.0.1:1"), FollowingSection())
    await roles.prepare()
    cut = Blocked(lambda: None)
    roles.follower.run = partial(roles.rebuild, cut)  # type: ignore[method-assign]
    roles.start()
    await eventually(cut.begun.is_set)
    closing = asyncio.create_task(roles.close())
    for _ in range(5):
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    again = asyncio.create_task(roles.close())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not again.done()
    cut.go_on.set()
    await again
    assert bench.begun() == []


async def test_who_cancels_a_task_can_be_cancelled_itself() -> None:
    """Else a node that stops while it ends a role would go on, and its stop would wait forever."""
    go_on = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await go_on.wait()

    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    ending = asyncio.create_task(cancelled(task))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    go_on.set()
    await cancelled(task)
