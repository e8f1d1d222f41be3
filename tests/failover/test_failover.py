"""Nodes that elect, as real processes: whatever happens to one of them, no acknowledged message is
lost, none is there twice, and puts continue by themselves."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.coordinators import EmbeddedProcess, EtcdProcesses, etcd_or_skip
from helpers.elected_nodes import Account, ElectedNodes

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

LEASE_S = 6.0
STEADY_LEASE_S = 20
"""Of a cluster that must keep its master: longer than a machine that others share stands still."""


@pytest.fixture
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ElectedNodes]:
    """By the embedded coordinator, if the test asks for no other one."""
    if getattr(request, "param", "embedded") == "etcd":
        etcd_or_skip()
        with EtcdProcesses(tmp_path, 3) as etcd:
            for each in etcd.members:
                each.wait_ready()
            with ElectedNodes(tmp_path, etcd.endpoints) as running:
                yield running
        return
    with (
        EmbeddedProcess(tmp_path) as coordinator,
        ElectedNodes(tmp_path, [coordinator.endpoint]) as running,
    ):
        yield running


@pytest.mark.parametrize("nodes", ["embedded", "etcd"], indirect=True)
def test_a_killed_master_is_replaced_and_comes_back_as_a_slave(nodes: ElectedNodes) -> None:
    with Account(nodes.endpoints) as account:
        for _ in range(2):
            master = nodes.wait_master()
            epoch = nodes.epoch(master)
            killed = time.monotonic()
            master.kill()
            successor = nodes.wait_master()
            account.wait_more(killed + 0.5)
            assert successor is not master
            assert nodes.epoch(successor) == epoch + 1
            master.start()
            nodes.wait_all_in_sync()
    assert not account.failed
    account.check(nodes)


@pytest.mark.parametrize("nodes", ["embedded", "etcd"], indirect=True)
def test_a_master_that_sleeps_through_an_election_acknowledges_nothing(nodes: ElectedNodes) -> None:
    with Account(nodes.endpoints) as account:
        zombie = nodes.wait_master()
        slept = time.monotonic()
        zombie.pause()
        nodes.wait_master(other_than=zombie)
        account.wait_more(slept + 1.0)
        assert account.longest_gap() < LEASE_S + 3.0
        zombie.resume()
        nodes.wait_all_in_sync()
        assert nodes.wait_master() is not zombie
    assert not account.failed
    account.check(nodes)


def test_a_slave_that_dies_stalls_puts_for_a_moment_and_fails_none(tmp_path: Path) -> None:
    with (
        EmbeddedProcess(tmp_path) as coordinator,
        ElectedNodes(tmp_path, [coordinator.endpoint], lease_ttl_s=STEADY_LEASE_S) as nodes,
        Account(nodes.endpoints) as account,
    ):
        master = nodes.wait_master()
        slave = next(node for node in nodes.nodes if node is not master)
        killed = time.monotonic()
        slave.kill()
        account.wait_more(killed + 1.0)
        slave.start()
        nodes.wait_all_in_sync()
        assert nodes.wait_master() is master
        account.stop()
        assert not account.failed
        account.check(nodes)


def test_puts_continue_while_the_coordinator_is_away(tmp_path: Path) -> None:
    with (
        EmbeddedProcess(tmp_path) as coordinator,
        ElectedNodes(tmp_path, [coordinator.endpoint]) as nodes,
        Account(nodes.endpoints) as account,
    ):
        master = nodes.wait_master()
        epoch = nodes.epoch(master)
        coordinator.kill()
        gone = time.monotonic()
        account.wait_more(gone + LEASE_S + 4.0)
        assert account.longest_gap() < 3.0
        coordinator.start().wait_ready()
        nodes.wait_all_in_sync()
        assert nodes.epoch(nodes.wait_master()) == epoch
        account.stop()
        account.check(nodes)


def test_all_nodes_are_killed_at_once(nodes: ElectedNodes) -> None:
    with Account(nodes.endpoints) as account:
        for node in nodes.nodes:
            node.kill()
        for node in nodes.nodes:
            node.start(wait=False)
        restarted = time.monotonic()
        nodes.wait_master()
        account.wait_more(restarted)
        nodes.wait_all_in_sync()
    account.check(nodes)
