"""What `up --secure` makes: complete, for its owner, and the same at the next start."""

import datetime
import stat
import tomllib
from pathlib import Path

import pytest

from helpers.made_certificates import now
from tandemlog import load_profile
from tandemlog.transport.security_files import SecurityFiles
from tandemlog_server.cli.local.local_cluster import LocalCluster, Wishes, plan_cluster
from tandemlog_server.cli.local.local_security import HOSTS, LocalSecurity
from tandemlog_server.node.access.access_file import parse_access
from tandemlog_server.node.access.identities import digest_of
from tandemlog_server.node.certs.authority import CertificateError
from tandemlog_server.node.certs.folder import make_certificate
from tandemlog_server.node.certs.owners import Owner, OwnerKind
from tandemlog_server.node.settings.config_loading import load_config

NODES = ("n0", "n1")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_second_start_keeps_everything(tmp_path: Path) -> None:
    made = LocalSecurity(tmp_path, "c")
    made.prepare(NODES, "127.0.0.1:1,127.0.0.1:2")
    first = contents(made.folder)
    for name in first:
        if name.endswith((".key", ".token", ".toml")):
            assert stat.S_IMODE((made.folder / name).stat().st_mode) == 0o600, name
    made.prepare(NODES, "127.0.0.1:1,127.0.0.1:2")
    assert contents(made.folder) == first
    made.prepare((*NODES, "n2"), "127.0.0.1:1")
    grown = contents(made.folder)
    assert {*grown} - {*first} == {"n2.crt", "n2.key", "n2.token"}
    access = parse_access(grown["access.toml"].decode(), "it")
    token = grown["n2.token"].decode().strip()
    found = access.of_token(digest_of(token))
    assert found is not None
    assert found.node == "n2"


def test_what_ends_soon_is_renewed(tmp_path: Path) -> None:
    made = LocalSecurity(tmp_path, "c")
    made.prepare(NODES, "127.0.0.1:1")
    make_certificate(made.folder, Owner("c", OwnerKind.NODE, "n1"), HOSTS, 29, now())
    before = contents(made.folder)
    made.prepare(NODES, "127.0.0.1:1")
    after = contents(made.folder)
    assert {name for name in after if after[name] != before[name]} == {"n1.crt", "n1.key"}


def test_the_folder_of_another_cluster_is_not_used(tmp_path: Path) -> None:
    LocalSecurity(tmp_path, "c").prepare(NODES, "127.0.0.1:1")
    with pytest.raises(CertificateError, match="authority of the cluster 'c', and this one is 'd'"):
        LocalSecurity(tmp_path, "d").prepare(NODES, "127.0.0.1:1")


def test_the_profile_is_the_operators_way_in(tmp_path: Path) -> None:
    made = LocalSecurity(tmp_path, "c")
    made.prepare(NODES, "127.0.0.1:1,127.0.0.1:2")
    profile = load_profile("local", {"TANDEMLOG_CONFIG_DIR": str(made.folder)})
    assert profile.security == made.client
    assert profile.endpoint == "127.0.0.1:1,127.0.0.1:2"
    loaded = SecurityFiles(profile.security).current()
    access = parse_access(made.access_file.read_text(), "it")
    operator = access.of_token(digest_of(loaded.metadata[0][1].removeprefix("Bearer ")))
    assert operator is not None
    assert operator.admin
    assert made.client_context().get_ca_certs()[0]["notAfter"]


def test_the_nodes_are_told(tmp_path: Path) -> None:
    plan = plan_cluster(tmp_path, Wishes(slaves=1, secure=True))
    cluster = LocalCluster(tmp_path, plan, 20_000)
    cluster.write()
    assert plan_cluster(tmp_path, Wishes()).secure
    assert not plan_cluster(tmp_path, Wishes(secure=False)).secure
    for node in cluster.nodes:
        config = load_config(node.config)
        assert config.tls.requires_certificates
        assert config.security.access_file
        options = config.coordinator_options()
        assert options.security.cert_file == config.tls.cert_file
        assert config.peer_security().token_file.endswith(f"{node.node_id}.token")
        assert "tl_" not in node.config.read_text()
    text = (tmp_path / "n0" / "node.toml").read_text()
    assert tomllib.loads(text)["coordinator"]["tls"] is True


def test_certificates_are_valid_for_a_year(tmp_path: Path) -> None:
    made = LocalSecurity(tmp_path, "c")
    made.prepare(NODES, "127.0.0.1:1")
    assert not made._is_due("n0", now() + datetime.timedelta(days=330))
    assert made._is_due("n0", now() + datetime.timedelta(days=340))


def test_the_line_of_the_console_says_how_to_be_let_in(tmp_path: Path) -> None:
    plan = plan_cluster(tmp_path, Wishes(slaves=0, secure=True))
    line = LocalCluster(tmp_path, plan, 20_000, console=True).console()
    assert line.startswith("console: https://127.0.0.1:20100/console/ ")
    assert str(tmp_path / "secure" / "operator.token") in line
    plan = plan_cluster(tmp_path / "open", Wishes(slaves=0, secure=False))
    line = LocalCluster(tmp_path / "open", plan, 20_000, console=True).console()
    assert line == "console: http://127.0.0.1:20100/console/"
