"""The embedded coordinator behind TLS: who is let in, and what `etcdctl` says."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.coordinator_suite import put, value_of
from helpers.coordinators import Process, etcd_or_skip
from helpers.made_certificates import Authority
from helpers.running import ROOT, free_ports, wait_until
from tandemlog.transport.security import Security
from tandemlog_server.cli import app
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
)
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.node.certs.owners import OwnerKind

pytestmark = pytest.mark.cluster

RENEWED_S = 3.0
"""A renewal takes milliseconds; this is what a loaded machine may add."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def coordinator(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("coordinator")
    made = authority.make(OwnerKind.COORDINATOR, "c0", ["127.0.0.1"])
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    command = [
        *(sys.executable, "-m", "tandemlog", "coordinator", "--dir", str(folder / "data")),
        *("--listen", endpoint, "--ca-file", authority.ca_file),
        *("--cert-file", str(made), "--key-file", str(made.with_suffix(".key"))),
        *("--allow-client", "operator"),
    ]
    process = Process("coordinator", endpoint, command, folder)
    process.start()
    try:
        wait_until("the coordinator to start", lambda: "started" in process.log.read_text(), 90)
        yield process
    finally:
        process.kill()


def client_of(
    coordinator: Process, security: Security, attempt_s: float = 15.0, budget_s: float = 30.0
) -> EtcdCoordinator:
    """It waits longer than a machine that others share may stand still."""
    options = CoordinatorOptions((coordinator.endpoint,), attempt_s, budget_s, security=security)
    return EtcdCoordinator(options)


def shown(authority: Authority, kind: OwnerKind, name: str) -> Security:
    made = authority.make(kind, name, ["127.0.0.1"])
    return Security(authority.ca_file, str(made), str(made.with_suffix(".key")))


async def test_a_node_and_a_named_client_are_let_in(
    authority: Authority, coordinator: Process
) -> None:
    for kind, name in ((OwnerKind.NODE, "n0"), (OwnerKind.CLIENT, "operator")):
        client = client_of(coordinator, shown(authority, kind, name))
        await put(client, b"/k", name.encode())
        assert await value_of(client, b"/k") == name.encode()
        lease = await client.grant_lease(60)
        await client.keep_alive(lease.lease_id)
        await client.close()


async def test_another_client_is_not(authority: Authority, coordinator: Process) -> None:
    client = client_of(coordinator, shown(authority, OwnerKind.CLIENT, "orders"))
    for refused in (client.get(b"/k"), client.grant_lease(60)):
        with pytest.raises(CoordinatorRefusedError, match=r"client/orders.* --allow-client"):
            await refused
    await client.close()


@pytest.mark.parametrize("case", ["no certificate", "another authority"])
async def test_who_shows_nothing_of_ours(
    case: str, authority: Authority, coordinator: Process, tmp_path: Path
) -> None:
    security = Security(authority.ca_file)
    words = "the node requires a client certificate"
    if case == "another authority":
        theirs = shown(Authority(tmp_path / "theirs"), OwnerKind.NODE, "n0")
        security = Security(authority.ca_file, theirs.cert_file, theirs.key_file)
        words = "signed by another authority than that of ca_file"
    client = client_of(coordinator, security, 1.0, 2.0)
    said = ""
    while words not in said:  # the reason is found out beside the first attempt
        with pytest.raises(CoordinatorUnavailableError) as failed:
            await client.get(b"/k")
        said = str(failed.value)
    await client.close()


def test_etcdctl_works(authority: Authority, coordinator: Process) -> None:
    etcd_or_skip()
    security = shown(authority, OwnerKind.CLIENT, "operator")
    files = (
        f"--cacert={security.ca_file}",
        f"--cert={security.cert_file}",
        f"--key={security.key_file}",
    )
    done = subprocess.run(
        [
            *("etcdctl", f"--endpoints=https://{coordinator.endpoint}", "--command-timeout=30s"),
            *(*files, "put", "/e", "1"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "ETCDCTL_API": "3"},
    )
    assert (done.returncode, done.stdout) == (0, "OK\n"), done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--listen", "0.0.0.0:1"), "other machines reach 0.0.0.0, and all who reach"),
        (("--cert-file", "x"), "TLS needs both --cert-file and --key-file"),
        (("--cert-file", "x", "--key-file", "y"), "give --ca-file, whose certificates callers"),
        (
            ("--ca-file", "x", "--cert-file", "x", "--key-file", "y"),
            "cannot read x: No such file or directory",
        ),
    ],
)
def test_what_does_not_start(
    options: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["tandemlog", "coordinator", "--dir", str(tmp_path / "d"), *options]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "d").exists()


# ---- what one caller does costs no node its lease


HOSTILE = """
import asyncio, sys
from pathlib import Path
import grpc
from grpc import aio
from tandemlog.v1 import coordinator_pb2 as pb

endpoint, ca, pair, what = sys.argv[1:]
made = Path(pair)
credentials = grpc.ssl_channel_credentials(
    Path(ca).read_bytes(), made.with_suffix(".key").read_bytes(), made.read_bytes()
)


def channel(number):
    options = (("grpc.use_local_subchannel_pool", 1), ("n", number))
    return aio.secure_channel(endpoint, credentials, options=options)


async def calls():
    open_calls = []
    for number in range(8):
        each = channel(number)
        await asyncio.wait_for(each.channel_ready(), 20)
        for _ in range(200):
            open_calls.append(each.stream_unary("/etcdserverpb.KV/Range")())
    print("ready", flush=True)
    await asyncio.sleep(60)


async def watches():
    each = channel(0)
    put = each.unary_unary("/etcdserverpb.KV/Txn")
    for number in range(80):
        ops = [
            pb.RequestOp(request_put=pb.PutRequest(key=b"k%d" % key, value=b"%d" % number))
            for key in range(100)
        ]
        await put(pb.TxnRequest(success=ops).SerializeToString(), timeout=20)
    create = pb.WatchCreateRequest(key=b"none", range_end=b"o", start_revision=1)
    watch = each.stream_stream("/etcdserverpb.Watch/Watch")()
    for _ in range(200):
        await watch.write(pb.WatchRequest(create_request=create).SerializeToString())
    print("ready", flush=True)
    await asyncio.sleep(60)


asyncio.run(globals()[what]())
"""


@contextlib.contextmanager
def hostile(coordinator: Process, authority: Authority, who: str, what: str) -> Iterator[None]:
    made = authority.make(OwnerKind.CLIENT, who, ["127.0.0.1"])
    arguments = (coordinator.endpoint, authority.ca_file, str(made), what)
    with subprocess.Popen(
        [sys.executable, "-c", HOSTILE, *arguments],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


@pytest.mark.quiet
@pytest.mark.parametrize(
    ("who", "what"), [("stranger", "calls"), ("operator", "calls"), ("operator", "watches")]
)
async def test_a_node_renews_whatever_another_caller_does(
    authority: Authority, coordinator: Process, who: str, what: str
) -> None:
    """Calls without a request, of a caller that is let in and of one of the same authority that is
    not; and watches that go through the whole history."""
    node = client_of(coordinator, shown(authority, OwnerKind.NODE, "n0"))
    lease = (await node.grant_lease(30)).lease_id
    with hostile(coordinator, authority, who, what):
        slowest = 0.0
        for _ in range(10):
            began = time.monotonic()
            assert (await node.keep_alive(lease)).ttl_s > 0
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.1)
        print(f"{who} {what}: slowest renewal {slowest:.3f} s")
        assert slowest < RENEWED_S
    await node.close()
    assert coordinator.alive
