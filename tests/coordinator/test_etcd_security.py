"""TLS, client certificates, users and their rights, against a real etcd."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from conformance.coordinator_suite import put, told, value_of
from helpers.coordinators import EtcdProcesses, certificates, etcd_or_skip, openssl_or_skip
from helpers.running import wait_until
from tandemlog.transport.security import Security
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
)
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.coordinator.values import KeyRange, Put, Txn

pytestmark = pytest.mark.cluster

USER, PASSWORD = "node", "a word"


class Secured:
    """A member that wants certificates, and has a user with rights below /ours/."""

    def __init__(self, folder: Path) -> None:
        self.certificates = certificates(folder / "certificates")
        made = self.certificates
        options = (
            f"--cert-file={made}/server.pem",
            f"--key-file={made}/server.key",
            f"--trusted-ca-file={made}/ca.pem",
            "--client-cert-auth",
        )
        self.etcd = EtcdProcesses(folder / "etcd", 1, options, scheme="https")

    @property
    def endpoint(self) -> str:
        return self.etcd.endpoints[0]

    def tls(self, *, own: bool = True, ca: bool = True) -> Security:
        made = self.certificates
        return Security(
            ca_file=str(made / "ca.pem") if ca else "",
            cert_file=str(made / "client.pem") if own else "",
            key_file=str(made / "client.key") if own else "",
        )

    def etcdctl(self, *arguments: str) -> bool:
        made = self.certificates
        files = (
            f"--cacert={made}/ca.pem",
            f"--cert={made}/client.pem",
            f"--key={made}/client.key",
        )
        ended = subprocess.run(
            ["etcdctl", f"--endpoints=https://{self.endpoint}", *files, *arguments],
            capture_output=True,
            check=False,
            timeout=30,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        return ended.returncode == 0

    def ready(self) -> bool:
        self.etcd.members[0].check()
        return self.etcdctl("--command-timeout=1s", "endpoint", "health")

    def add_users(self) -> None:
        for arguments in (
            ("user", "add", "root:root"),
            ("user", "grant-role", "root", "root"),
            ("role", "add", "ours"),
            ("role", "grant-permission", "ours", "--prefix=true", "readwrite", "/ours/"),
            ("user", "add", f"{USER}:{PASSWORD}"),
            ("user", "grant-role", USER, "ours"),
            ("auth", "enable"),
        ):
            # a hash of a password takes long on a machine that has much else to do
            assert self.etcdctl("--command-timeout=25s", *arguments), arguments


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    etcd_or_skip()
    openssl_or_skip()
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.etcd:
        wait_until("etcd with TLS to answer", made.ready)
        made.add_users()
        yield made


def options_of(secured: Secured, **changes: object) -> CoordinatorOptions:
    values = {
        "endpoints": (secured.endpoint,),
        "attempt_s": 3.0,
        "budget_s": 10.0,
        "probe_s": 0.5,
        "security": secured.tls(),
        "user": USER,
        "password": PASSWORD,
        **changes,
    }
    return CoordinatorOptions(**values)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def client(secured: Secured) -> AsyncIterator[EtcdCoordinator]:
    made = EtcdCoordinator(options_of(secured))
    yield made
    await made.close()


async def test_a_user_with_rights(client: EtcdCoordinator) -> None:
    revision = await put(client, b"/ours/k", b"1")
    assert await value_of(client, b"/ours/k") == b"1"
    lease = await client.grant_lease(60)
    await client.keep_alive(lease.lease_id)
    await put(client, b"/ours/leased", b"", lease.lease_id)
    async with aclosing(client.watch(KeyRange(b"/ours/k"), revision)) as watch:
        assert await told(watch, 1) == [(b"/ours/k", b"1")]
    await client.revoke_lease(lease.lease_id)


async def test_what_the_user_has_no_right_to(client: EtcdCoordinator) -> None:
    for denied in (
        client.get(b"/theirs/k"),
        client.txn(Txn((), (Put(b"/theirs/k", b""),))),
        anext(client.watch(KeyRange(b"/theirs/k"), 1)),
    ):
        with pytest.raises(CoordinatorRefusedError, match="permission denied"):
            await asyncio.wait_for(denied, 20)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"password": "another word"}, "authentication failed"),
        ({"user": "nobody"}, "authentication failed"),
    ],
)
async def test_a_wrong_password(secured: Secured, changes: dict[str, str], named: str) -> None:
    client = EtcdCoordinator(options_of(secured, **changes))
    for attempt in (client.get(b"/ours/k"), client.txn(Txn((), (Put(b"/ours/w", b""),)))):
        with pytest.raises(CoordinatorRefusedError, match=named):
            await attempt
    await client.close()


async def test_without_a_user(secured: Secured) -> None:
    """Its certificate names nobody whom etcd knows."""
    client = EtcdCoordinator(options_of(secured, user="", password=""))
    with pytest.raises(CoordinatorRefusedError, match=r"user name|permission denied"):
        await client.get(b"/ours/k")
    await client.close()


@pytest.mark.parametrize("case", ["no TLS", "no certificate of its own", "another authority"])
async def test_without_the_right_certificates(secured: Secured, case: str) -> None:
    tls = {
        "no TLS": Security(),
        "no certificate of its own": secured.tls(own=False),
        "another authority": secured.tls(ca=False),
    }[case]
    client = EtcdCoordinator(options_of(secured, security=tls, attempt_s=0.5, budget_s=0.5))
    for attempt in (client.get(b"/ours/k"), client.txn(Txn((), (Put(b"/ours/w", b""),)))):
        with pytest.raises(CoordinatorUnavailableError):
            await attempt
    if case != "no TLS":
        await told_why(client, WORDS[case])
    await client.close()


WORDS = {
    "no certificate of its own": "requires a client certificate",
    "another authority": "signed by another authority",
}


async def told_why(client: EtcdCoordinator, words: str) -> None:
    """An error tells what is wrong with the certificates once that has been found out."""
    async with asyncio.timeout(60):
        while True:
            with pytest.raises(CoordinatorUnavailableError) as failed:
                await client.get(b"/ours/k")
            if words in str(failed.value):
                return


async def test_a_token_that_is_refused_is_renewed(
    secured: Secured, client: EtcdCoordinator
) -> None:
    """A member forgets all tokens when it restarts; calls and watches go on."""
    revision = await put(client, b"/ours/t", b"1")
    async with aclosing(client.watch(KeyRange(b"/ours/t"), revision)) as watch:
        assert await told(watch, 1) == [(b"/ours/t", b"1")]
        member = secured.etcd.members[0]
        member.kill()
        member.start()
        wait_until("etcd with TLS to answer", secured.ready)
        await put(client, b"/ours/t", b"2")
        assert await value_of(client, b"/ours/t") == b"2"
        assert await told(watch, 1) == [(b"/ours/t", b"2")]
