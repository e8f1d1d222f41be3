"""The authority and its certificates: what they say, whom they fit, and how they are replaced."""

import datetime
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509

from helpers.made_certificates import now
from tandemlog_server.cli import app
from tandemlog_server.node.certs import folder as certs
from tandemlog_server.node.certs.authority import (
    CertificateError,
    Pair,
    issue,
    new_authority,
    read_authority,
)
from tandemlog_server.node.certs.description import (
    described,
    fits_key,
    hosts_in,
    is_signed_by,
    owner_in,
    read_certificate,
    state_of,
)
from tandemlog_server.node.certs.owners import Owner, OwnerKind, owner_of

NODE = Owner("prod", OwnerKind.NODE, "n1")
CLIENT = Owner("prod", OwnerKind.CLIENT, "orders")


def certificate(pem: bytes) -> x509.Certificate:
    return read_certificate(pem, "it")


def uses(made: x509.Certificate) -> set[str]:
    found = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    return {each._name for each in found.value}


def test_a_name_is_a_uri() -> None:
    for owner in (NODE, CLIENT, Owner("a/b é", OwnerKind.COORDINATOR, "c.0")):
        assert owner_of(owner.uri) == owner
    assert NODE.uri == "tandemlog://prod/node/n1"
    for other in ("spiffe://prod/node/n1", "tandemlog://prod/king/n1", "tandemlog://prod/n1", "x"):
        assert owner_of(other) is None
    for name in ("", "a/b", "../n1", ".n1", "a b", "x" * 65):
        with pytest.raises(ValueError, match="the name of a client must be"):
            Owner("prod", OwnerKind.CLIENT, name)


def test_a_node_serves_and_calls_and_a_client_calls() -> None:
    at = now()
    authority = new_authority("prod", 10, at)
    signer = read_authority(authority)[0]
    hosts = ["db1.example", "10.0.0.1", "::1", "db1.example"]
    pair = issue(authority, NODE, hosts, 5, at)
    made = certificate(pair.certificate)
    assert owner_in(made) == NODE
    assert hosts_in(made) == ["db1.example", "10.0.0.1", "::1"]
    assert uses(made) == {"serverAuth", "clientAuth"}
    assert is_signed_by(made, signer)
    assert fits_key(made, pair.key, "it")
    caller = issue(authority, CLIENT, [], 5, at)
    assert uses(certificate(caller.certificate)) == {"clientAuth"}
    assert not fits_key(made, caller.key, "it")
    other = read_authority(new_authority("prod", 10, at))[0]
    assert not is_signed_by(made, other)
    row = described(made, at)
    assert (row["name"], row["kind"], row["cluster"], row["days_left"]) == ("n1", "node", "prod", 5)


def test_a_certificate_ends_with_its_authority() -> None:
    at = now()
    authority = new_authority("prod", 2, at)
    made = certificate(issue(authority, CLIENT, [], 100, at).certificate)
    assert made.not_valid_after_utc == read_authority(authority)[0].not_valid_after_utc
    late = at + datetime.timedelta(days=3)
    assert state_of(made, late) == "expired"
    assert state_of(made, at - datetime.timedelta(days=1)) == "not yet valid"
    assert state_of(made, at) == "valid"
    with pytest.raises(CertificateError, match=r"the authority expired at .* --force"):
        issue(authority, CLIENT, [], 1, late)


def test_what_cannot_be_made() -> None:
    at = now()
    authority = new_authority("prod", 2, at)
    with pytest.raises(CertificateError, match="node n1: a certificate needs the names"):
        issue(authority, NODE, [], 1, at)
    for host in ("http://a", "a:1", "a b", ""):
        with pytest.raises(CertificateError, match="give a name or an IP address"):
            issue(authority, NODE, [host], 1, at)
    leaf = issue(authority, CLIENT, [], 1, at)
    with pytest.raises(CertificateError, match="not an authority"):
        issue(leaf, NODE, ["a"], 1, at)
    other = new_authority("prod", 2, at)
    with pytest.raises(CertificateError, match="key does not fit"):
        issue(Pair(authority.certificate, other.key), CLIENT, [], 1, at)
    with pytest.raises(CertificateError, match="not the certificate and key"):
        issue(Pair(b"x", b"secret"), CLIENT, [], 1, at)


def test_keys_are_for_their_owner(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    certs.make_authority(folder, "prod", 10, now())
    file = certs.make_certificate(folder, CLIENT, [], 1, now())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("ca", "orders"):
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
    assert "PRIVATE" not in repr(certs.authority_in(folder))
    assert file == folder / "orders.crt"
    assert sorted(os.listdir(folder)) == ["ca.crt", "ca.key", "orders.crt", "orders.key"]


def test_an_authority_is_not_replaced_by_mistake(tmp_path: Path) -> None:
    certs.make_authority(tmp_path, "prod", 10, now())
    held = (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "ca.crt").unlink()  # its key alone is enough to be kept
    with pytest.raises(CertificateError, match="--force"):
        certs.make_authority(tmp_path, "prod", 10, now())
    certs.make_authority(tmp_path, "prod", 10, now(), force=True)
    assert (tmp_path / "ca.crt").read_bytes() != held
    with pytest.raises(CertificateError, match="make an authority first"):
        certs.authority_in(tmp_path / "other")


def test_renewed_pairs_are_new_files_that_fit(tmp_path: Path) -> None:
    """A reader that has opened the old file reads the old file to its end."""
    certs.make_authority(tmp_path, "prod", 10, now())
    file = certs.make_certificate(tmp_path, NODE, ["a"], 1, now())
    with file.open("rb") as held:
        inode = file.stat().st_ino
        certs.make_certificate(tmp_path, NODE, ["b"], 1, now())
        assert hosts_in(certificate(held.read())) == ["a"]
    assert file.stat().st_ino != inode
    made = certificate(file.read_bytes())
    assert hosts_in(made) == ["b"]
    assert fits_key(made, (tmp_path / "n1.key").read_bytes(), "it")


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["tandemlog", "certs", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def test_the_command_makes_and_shows_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "made")
    nodes = "n0=db0+10.0.0.1,n1=db1"
    options = ("--cluster", "prod", "--nodes", nodes, "--clients", "orders")
    code, out, err = run(monkeypatch, capsys, "cluster", folder, *options)
    assert (code, err) == (0, "")
    assert [Path(line.split()[0]).name for line in out.splitlines()] == [
        "ca.crt",
        "n0.crt",
        "n1.crt",
        "orders.crt",
    ]
    files = [f"{folder}/{name}.crt" for name in ("ca", "n0", "orders")]
    code, out, err = run(monkeypatch, capsys, "show", *files, "--format", "jsonl")
    assert (code, err) == (0, "")
    assert '"name":"n0","kind":"node","cluster":"prod","hosts":"db0,10.0.0.1"' in out
    assert out.count('"signed_by_authority":true') == 3
    assert run(monkeypatch, capsys, "node", folder, "n1", "--host", "db9")[0] == 0
    assert hosts_in(certificate(Path(folder, "n1.crt").read_bytes())) == ["db9"]
    code, _, err = run(monkeypatch, capsys, "authority", folder)
    assert code != 0
    assert "--force" in err


def test_the_command_finds_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certs.make_authority(tmp_path, "prod", 10, now())
    ago = now() - datetime.timedelta(days=9)
    certs.make_certificate(tmp_path, CLIENT, [], 1, ago)
    certs.make_certificate(tmp_path, NODE, ["a"], 1, now())
    certs.make_authority(tmp_path, "prod", 10, now(), force=True)
    (tmp_path / "n1.key").write_bytes((tmp_path / "orders.key").read_bytes())
    names = [str(tmp_path / f"{each}.crt") for each in ("orders", "n1")]
    code, _, err = run(monkeypatch, capsys, "show", *names)
    assert code == 1
    assert "orders.crt: expired" in err
    assert "n1.crt: does not fit its key" in err
    assert err.count("not signed by the authority") == 2
    (tmp_path / "empty.crt").write_text("")
    code, _, err = run(monkeypatch, capsys, "show", str(tmp_path / "empty.crt"))
    assert "empty.crt is not a certificate in PEM" in err
