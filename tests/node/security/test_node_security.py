"""Certificates and identities are replaced while a node runs, and never by something unusable."""

import asyncio
import datetime
import logging
import os
import ssl
from pathlib import Path

import pytest

from fakes.authority import Authority, Pair
from fakes.secured_node import access_text, settings, token, until
from tandemlog_server.node.access.access_refusals import NotKnownError
from tandemlog_server.node.access.identities import Access
from tandemlog_server.node.security.node_security import NodeSecurity, state_of_file
from tandemlog_server.node.security.security_loading import utc_now
from tandemlog_server.node.security.watched_files import FileState, WatchedFiles

SECOND = datetime.timedelta(seconds=1)


def served(security: NodeSecurity) -> bytes:
    """The certificate that a new HTTP connection gets."""
    assert security.tls is not None
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = security.tls.http_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found).encode()


async def test_new_certificates_are_served_from_the_next_connection_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    authority = Authority()
    security = NodeSecurity(settings(tmp_path, authority=authority, required=True))
    assert security.tls is not None
    assert security.tls._pop_fresh() is None
    before = served(security)
    await security.reload_changed()
    assert served(security) == before
    fresh = authority.node("n0")
    fresh.write(tmp_path, "n0")
    await security.reload_changed()
    assert served(security) == fresh.certificate
    assert security.tls._pop_fresh() is not None
    assert security.tls._pop_fresh() is None
    assert caplog.messages[-1].startswith("new certificates are in use: ")
    expires_at = security.certificate_expiry_s()
    assert expires_at is not None
    assert 86_000 < expires_at - utc_now().timestamp() <= 86_400


async def test_a_pair_that_does_not_fit_changes_nothing_and_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    security = NodeSecurity(settings(tmp_path, authority=authority))
    before = served(security)
    fresh = authority.node("n0")
    (tmp_path / "n0.pem").write_bytes(fresh.certificate)  # the key comes a moment later
    for _ in range(3):
        await security.reload_changed()
    assert served(security) == before
    (fault,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "does not fit" in fault.message
    assert "PRIVATE" not in fault.message
    (tmp_path / "n0.key").write_bytes(fresh.key)
    await security.reload_changed()
    assert served(security) == fresh.certificate
    for unusable in (Pair(b"", b""), authority.node("n1"), authority.issue(ends=-SECOND)):
        unusable.write(tmp_path, "n0")
        await security.reload_changed()
        assert served(security) == fresh.certificate
    os.unlink(tmp_path / "n0.key")
    await security.reload_changed()
    assert served(security) == fresh.certificate


async def test_a_new_access_file_counts_at_once_and_a_bad_one_never(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    security = NodeSecurity(settings(tmp_path, access=access_text(a={}, b={})))
    door, file = security.doorkeeper, tmp_path / "access.toml"
    door.identify(f"Bearer {token('b')}", None)
    file.write_text(access_text(a={}, c={}))
    await security.reload_changed()
    door.identify(f"Bearer {token('c')}", None)
    with pytest.raises(NotKnownError):
        door.identify(f"Bearer {token('b')}", None)
    for bad in ("", "[[identity]]\n", "\xff"):
        file.write_bytes(bad.encode("latin-1"))
        await security.reload_changed()
        door.identify(f"Bearer {token('c')}", None)
    faults = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(faults) == 3
    file.unlink()
    await security.reload_changed()
    door.identify(f"Bearer {token('c')}", None)


async def test_nothing_in_a_file_ends_the_looks_at_it(tmp_path: Path) -> None:
    """Else no token could be revoked any more, and no line would say so."""
    security = NodeSecurity(settings(tmp_path, access=access_text(a={}, b={})))
    looks = 0
    real = security._reloaded_access

    def reload() -> Access | None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RecursionError
        return real()

    security._reloaded_access = reload  # type: ignore[method-assign]
    watching = asyncio.create_task(security.watch())
    (tmp_path / "access.toml").write_text(access_text(a={}))
    await until(lambda: looks == 1)
    (tmp_path / "access.toml").write_text(access_text(c={}))
    await until(lambda: looks == 2)
    await until(lambda: not watching.done() and security.doorkeeper._version == 2)
    assert security.doorkeeper.identify(f"Bearer {token('c')}", None).identity.name == "c"
    watching.cancel()


def test_a_change_is_another_inode_time_or_size(tmp_path: Path) -> None:
    looks: dict[str, FileState | None] = {"a": FileState(1, 1, 1), "b": None}
    watched = WatchedFiles(["a", "b", "", "a"], looks.__getitem__)
    assert not watched.changed()
    for look in (
        FileState(2, 1, 1),
        FileState(2, 2, 1),
        FileState(2, 2, 2),
        None,
        FileState(2, 2, 2),
    ):
        looks["a"] = look
        assert watched.changed()
        assert not watched.changed()
    looks["b"] = FileState(1, 1, 1)
    assert watched.changed()
    assert state_of_file(str(tmp_path / "none")) is None
