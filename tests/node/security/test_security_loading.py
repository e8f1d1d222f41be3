"""The files of [tls] and [security]: each fault is one line that names the file."""

import datetime
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.authority import DAY, Authority, Pair
from fakes.secured_node import access_text
from tandemlog_server.node.security.security_loading import (
    check_security,
    load_tls,
    read_file,
    utc_now,
)
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.security_sections import SecuritySection, TlsSection

AUTHORITY = Authority()
N0 = AUTHORITY.node("n0")


def config(folder: Path, pair: Pair = N0, *, access: str = "", **security: Any) -> NodeConfig:
    """Of node n0 in the cluster `test`, with these files."""
    certificate, key = pair.write(folder, "n0")
    if access:
        (folder / "access.toml").write_text(access)
        security["access_file"] = str(folder / "access.toml")
    return NodeConfig(
        cluster_id="test",
        tls=TlsSection(
            ca_file=str(AUTHORITY.write(folder)), cert_file=str(certificate), key_file=str(key)
        ),
        security=SecuritySection(**security),
    )


def test_good_files_are_taken(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("tl_abc\n")
    good = config(tmp_path, access=access_text(a={}), token_file=str(tmp_path / "token"))
    check_security(good)
    files = load_tls(good, read=read_file, now=utc_now())
    assert files is not None
    assert datetime.timedelta(0) < files.expires_at - utc_now() <= DAY
    assert "BEGIN" not in repr(files)
    check_security(NodeConfig())


def test_a_client_without_a_uri_of_tandemlog_is_a_good_server_too(tmp_path: Path) -> None:
    check_security(config(tmp_path, AUTHORITY.issue(common_name="n0.example")))


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (Pair(N0.certificate, AUTHORITY.node("n0").key), "does not fit the certificate in"),
        (Pair(b"nothing", N0.key), "n0.pem has no certificate in PEM"),
        (Pair(N0.certificate, b"nothing"), "n0.key has no private key in PEM"),
        (AUTHORITY.issue(begins=-2 * DAY, ends=-DAY), "n0.pem expired on "),
        (AUTHORITY.issue(begins=DAY, ends=2 * DAY), "is valid from "),
        (AUTHORITY.node("n2"), "is of 'tandemlog://test/node/n2', and this is node 'n0'"),
        (AUTHORITY.node("n0", "x"), "is of the cluster 'x', and this is 'test'"),
        (AUTHORITY.client("n0"), "and this is node 'n0'"),
    ],
)
def test_certificates_that_cannot_be_used(tmp_path: Path, pair: Pair, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_security(config(tmp_path, pair))
    assert said in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "PRIVATE" not in str(refused.value)


def test_a_key_with_a_password(tmp_path: Path) -> None:
    locked = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"
    with pytest.raises(ConfigError, match=r"n0\.key"):
        check_security(config(tmp_path, Pair(N0.certificate, locked)))


@pytest.mark.parametrize("key", ["ca_file", "cert_file", "key_file"])
def test_a_file_that_is_missing(tmp_path: Path, key: str) -> None:
    good = config(tmp_path)
    Path(getattr(good.tls, key)).unlink()
    with pytest.raises(ConfigError, match=rf"tls\.{key}: cannot read .*: No such file"):
        check_security(good)


def test_an_expired_authority(tmp_path: Path) -> None:
    good = config(tmp_path)
    later = utc_now() + 11 * DAY
    with pytest.raises(ConfigError, match=r"ca\.pem expired on"):
        check_security(good, now=lambda: later)


@pytest.mark.parametrize("content", ["", "two words", "ä"])
def test_a_token_file_holds_one_token(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigError, match=r"security\.token_file: .* must hold one token") as bad:
        check_security(config(tmp_path, token_file=str(tmp_path / "token")))
    assert "words" not in str(bad.value)


def test_every_fault_is_a_line(tmp_path: Path) -> None:
    bad = config(
        tmp_path, AUTHORITY.node("n2"), access="[[identity]]\n", token_file=str(tmp_path / "none")
    )
    with pytest.raises(ConfigError) as refused:
        check_security(bad)
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "tls.cert_file",
        "security.access_file",
        "security.token_file",
    ]


def test_a_pipe_is_no_file_and_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_file(str(name))
    (tmp_path / "file").write_bytes(b"x")
    assert read_file(str(tmp_path / "file")) == b"x"
