"""`tandemlog coordinator` as a process: kill, pause, restart, a restored backup, and etcdctl."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from conformance.coordinator_suite import put, told, value_of
from helpers import forked
from helpers.coordinators import EmbeddedProcess, etcd_or_skip, etcdctl, paused
from helpers.running import ROOT, wait_until
from tandemlog_server.cli.shared.exit_codes import ADDRESS, OK, STORE, USAGE
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorUnavailableError,
    UnknownOutcomeError,
)
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.coordinator.values import KeyRange, Put, Txn, absent

pytestmark = pytest.mark.cluster

KEY = b"/k"
LEASE_S = 12
"""Longer than a machine that others share may stand still between two steps."""


class Clients:
    """Closed with the test."""

    def __init__(self) -> None:
        self.made: list[EtcdCoordinator] = []

    def __call__(self, *endpoints: str, **options: float) -> EtcdCoordinator:
        settings = {"attempt_s": 3.0, "budget_s": 15.0, "probe_s": 0.5, **options}
        client = EtcdCoordinator(CoordinatorOptions(endpoints, **settings))  # type: ignore[arg-type]
        self.made.append(client)
        return client


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[Clients]:
    made = Clients()
    yield made
    for each in made.made:
        await each.close()


async def until(what: str, true: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 60
    while not await true():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def until_answered(client: EtcdCoordinator) -> None:
    """Connected, also where the server has only just started."""

    async def answered() -> bool:
        try:
            await client.get(KEY)
        except CoordinatorUnavailableError:
            return False
        return True

    await until("an answer", answered)


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a coordinator that does not start."""
    ended = forked.run("coordinator", *arguments, timeout_s=120)
    return ended.returncode, ended.stderr


async def test_kill_and_restart_keep_data_revision_and_leases(
    tmp_path: Path, clients: Clients
) -> None:
    with EmbeddedProcess(tmp_path) as process:
        client = clients(process.endpoint)
        lease = await client.grant_lease(LEASE_S)
        await put(client, b"/leased", b"", lease.lease_id)
        start = await put(client, KEY, b"0")
        async with aclosing(client.watch(KeyRange(KEY), start + 1)) as watch:
            revision = start
            for number in (b"1", b"2"):
                acknowledged = await put(client, KEY, number)
                assert acknowledged > revision
                revision = acknowledged
                process.kill()
                process.start().wait_ready()
                found = await client.get(KEY)
                assert found.kv is not None
                assert (found.revision, found.kv.value) == (revision, number)
                assert (found.kv.create_revision, found.kv.mod_revision) == (start, revision)
            assert await told(watch, 2) == [(KEY, b"1"), (KEY, b"2")]
        renewed = await client.keep_alive(lease.lease_id)
        assert renewed.ttl_s == LEASE_S

        async def ended() -> bool:
            return await value_of(client, b"/leased") is None

        assert not await ended()
        await until("the lease to end", ended)
        assert process.stop() == OK
        process.start().wait_ready()
        assert await value_of(client, b"/leased") is None


async def test_what_a_paused_coordinator_has_taken_is_unknown(
    tmp_path: Path, clients: Clients
) -> None:
    with EmbeddedProcess(tmp_path) as process:
        client = clients(process.endpoint, attempt_s=0.5, budget_s=1.0)
        patient = clients(process.endpoint)
        await until_answered(client)
        lease = await patient.grant_lease(LEASE_S)
        await put(patient, b"/leased", b"", lease.lease_id)
        with paused(process):
            with pytest.raises(UnknownOutcomeError):
                await client.txn(Txn((absent(KEY),), (Put(KEY, b"1"),)))
            deadline = time.monotonic() + LEASE_S + 0.2  # longer than the lease
            while time.monotonic() < deadline:
                with pytest.raises(CoordinatorUnavailableError):
                    await client.get(KEY)
        # nobody could renew it: it has its whole time again
        assert await value_of(patient, b"/leased") == b""
        result = await patient.txn(Txn((absent(KEY),), (Put(KEY, b"2"),)))
        kv = (await patient.get(KEY)).kv
        assert kv is not None
        assert (kv.value, kv.version) == (b"2" if result.succeeded else b"1", 1)


async def test_a_restored_backup_is_not_believed(tmp_path: Path, clients: Clients) -> None:
    """By a client that has seen more; a change is not even sent there."""
    with EmbeddedProcess(tmp_path) as process:
        client = clients(process.endpoint, attempt_s=5.0, budget_s=10.0)
        await put(client, KEY, b"1")
        process.stop()
        shutil.copytree(process.data, tmp_path / "backup")
        process.start().wait_ready()
        await until_answered(client)
        for number in range(5):
            await put(client, KEY, b"%d" % number)
        process.stop()
        shutil.rmtree(process.data)
        shutil.copytree(tmp_path / "backup", process.data)
        process.start().wait_ready()
        with pytest.raises(CoordinatorUnavailableError, match="went back"):
            await client.txn(Txn((), (Put(KEY, b"lost"),)))
        with pytest.raises(CoordinatorUnavailableError, match="went back"):
            await client.get(KEY)
        fresh = clients(process.endpoint)
        assert await value_of(fresh, KEY) == b"1"


async def test_another_cluster_is_not_changed(tmp_path: Path, clients: Clients) -> None:
    with EmbeddedProcess(tmp_path / "a") as first, EmbeddedProcess(tmp_path / "b") as second:
        client = clients(first.endpoint, second.endpoint, attempt_s=5.0, budget_s=10.0)
        await put(client, KEY, b"1")
        first.kill()
        with pytest.raises(CoordinatorUnavailableError, match="belongs to cluster"):
            await client.get(KEY)  # now it knows that its connection is gone
        with pytest.raises(CoordinatorUnavailableError, match="belongs to cluster"):
            await client.txn(Txn((), (Put(KEY, b"2"),)))
        assert await value_of(clients(second.endpoint), KEY) is None


async def test_a_commit_that_fails_ends_it_and_loses_nothing(
    tmp_path: Path, clients: Clients
) -> None:
    """Its files may not grow above 300 kB, as on a full disk."""
    process = EmbeddedProcess(tmp_path)
    unlimited = process.command
    process.command = ["prlimit", "--fsize=300000", *unlimited]
    with process:
        client = clients(process.endpoint, attempt_s=10.0, budget_s=10.0)
        acknowledged: list[bytes] = []

        async def fill() -> None:
            for number in range(50):
                await put(client, b"/%d" % number, bytes(20_000))
                acknowledged.append(b"/%d" % number)

        with pytest.raises(UnknownOutcomeError):
            await fill()
        assert acknowledged
        assert process.process is not None
        assert process.process.wait(30) == STORE
        assert "a commit failed, the coordinator has stopped" in process.tail()
        assert "Traceback" not in process.tail(1 << 20)
        process.command = unlimited
        process.start().wait_ready()
        again = clients(process.endpoint)
        for key in acknowledged:
            assert await value_of(again, key) == bytes(20_000)


def test_who_cannot_start_says_why(tmp_path: Path) -> None:
    with EmbeddedProcess(tmp_path) as process:
        assert process.process is not None
        code, said = run("--dir", str(process.data), "--listen", "127.0.0.1:0")
        assert code == STORE
        assert f"{process.data} is used by another coordinator" in said
        assert f"process {process.process.pid}" in said
        other = str(tmp_path / "other")
        code, said = run("--dir", other, "--listen", process.endpoint)
        assert code == ADDRESS
        assert f"cannot listen on {process.endpoint}: another process uses the port" in said
        assert not Path(other).exists()
        code, said = run("--dir", other, "--listen", "nowhere")
        assert code == USAGE
        assert "host:port" in said
        assert process.stop() == OK
        assert "Traceback" not in process.tail()


def test_etcdctl(tmp_path: Path) -> None:
    etcd_or_skip()
    with EmbeddedProcess(tmp_path) as process:
        at = process.endpoint
        assert etcdctl(at, "put", "a", "1") == "OK\n"
        assert etcdctl(at, "put", "b", "2") == "OK\n"
        assert etcdctl(at, "get", "a") == "a\n1\n"
        assert etcdctl(at, "get", "--prefix", "") == "a\n1\nb\n2\n"
        assert etcdctl(at, "get", "--prefix", "", "--keys-only", "--order=DESCEND") == "b\n\na\n\n"
        assert etcdctl(at, "get", "a", "--rev=2") == "a\n1\n"
        assert etcdctl(at, "put", "--prev-kv", "a", "3") == "OK\na\n1\n"
        taken = etcdctl(at, "txn", stdin='value("a") = "3"\n\nput a 4\n\nput a 5\n\n')
        assert taken == "SUCCESS\n\nOK\n"
        assert etcdctl(at, "get", "a") == "a\n4\n"
        granted = etcdctl(at, "lease", "grant", "60")
        lease = granted.split()[1]
        assert granted == f"lease {lease} granted with TTL(60s)\n"
        etcdctl(at, "put", "c", "leased", f"--lease={lease}")
        assert f"lease {lease} keepalived with TTL(60)" in etcdctl(
            at, "lease", "keep-alive", "--once", lease
        )
        assert "attached keys([c])" in etcdctl(at, "lease", "timetolive", "--keys", lease)
        assert lease in etcdctl(at, "lease", "list")
        assert etcdctl(at, "lease", "revoke", lease) == f"lease {lease} revoked\n"
        assert etcdctl(at, "get", "c") == ""
        assert etcdctl(at, "del", "a") == "1\n"
        assert ", 3.4.0-tandemlog, " in etcdctl(at, "endpoint", "status")
        etcdctl(at, "endpoint", "health")
        assert "embedded" in etcdctl(at, "member", "list")
        watch = subprocess.Popen(
            ["etcdctl", "--endpoints", at, "watch", "--rev=2", "--prefix", ""],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert watch.stdout is not None
            lines = [watch.stdout.readline() for _ in range(6)]
            assert lines == ["PUT\n", "a\n", "1\n", "PUT\n", "b\n", "2\n"]
        finally:
            watch.kill()
            watch.communicate(timeout=30)
        assert etcdctl(at, "compact", "4") == "compacted revision 4\n"
        assert process.stop() == OK
        assert "Traceback" not in process.tail(1 << 20)


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """As the nodes of `tandemlog up`."""
    script = (
        "import os, subprocess, sys\n"
        "command = sys.argv[1:] + ['--with-parent', str(os.getpid())]\n"
        "print(subprocess.Popen(command).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = EmbeddedProcess(tmp_path)
    with process.log.open("ab") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", script, *process.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
    try:
        wait_until("the coordinator to answer", process.answers, 90)
    finally:
        parent.kill()
        parent.communicate(timeout=30)
    wait_until("the coordinator to be gone", lambda: not process.answers(), 60)
    process.start().wait_ready()  # its folder is free again
    assert process.stop() == OK
