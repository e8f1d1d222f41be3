"""A real etcd that takes half a second of a processor for each login: three nodes get in."""

import asyncio
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from helpers.coordinators import EtcdProcesses, etcd_or_skip, etcdctl
from helpers.running import wait_until
from tandemlog_server.ha.coordinator.coordinator_errors import CoordinatorError
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.coordinator.values import Lease, Put, Txn, with_prefix

pytestmark = pytest.mark.cluster


def done(endpoint: str, *arguments: str) -> bool:
    """A hash may take longer than etcd lets a request wait, and be there all the same."""
    try:
        etcdctl(endpoint, *arguments)
    except AssertionError as refused:
        return "already exists" in str(refused)
    return True


async def granted(client: EtcdCoordinator) -> Lease:
    while True:
        try:
            return await client.grant_lease(60)
        except CoordinatorError:
            await asyncio.sleep(0.1)


async def read(client: EtcdCoordinator) -> None:
    while True:
        try:
            await client.range(with_prefix(b"ours/"))
        except CoordinatorError:
            await asyncio.sleep(0.1)
        else:
            return


async def watched(client: EtcdCoordinator) -> None:
    async with aclosing(client.watch(with_prefix(b"ours/"), 1)) as watch:
        await anext(watch)


async def node(endpoint: str) -> None:
    """What a node does at its start, with the timeouts that it has by default."""
    client = EtcdCoordinator(CoordinatorOptions((endpoint,), user="n", password="n"))
    try:
        watching = asyncio.create_task(watched(client))
        lease, _ = await asyncio.gather(granted(client), read(client))
        await client.txn(Txn((), (Put(b"ours/k", b"1", lease.lease_id),)))
        await watching
    finally:
        await client.close()


async def test_three_nodes_get_in_together(tmp_path: Path) -> None:
    etcd_or_skip()
    with EtcdProcesses(tmp_path, 1, ("--bcrypt-cost=13",)) as etcd:
        etcd.members[0].wait_ready()
        (endpoint,) = etcd.endpoints
        for arguments in (
            ("user", "add", "root:root"),
            ("user", "grant-role", "root", "root"),
            ("role", "add", "ours"),
            ("role", "grant-permission", "ours", "--prefix=true", "readwrite", "ours/"),
            ("user", "add", "n:n"),
            ("user", "grant-role", "n", "ours"),
            ("auth", "enable"),
        ):
            wait_until(" ".join(arguments), partial(done, endpoint, *arguments), 60)
        async with asyncio.timeout(120):
            await asyncio.gather(*(node(endpoint) for _ in range(3)))
