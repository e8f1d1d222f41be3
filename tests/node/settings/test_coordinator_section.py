"""How a node's settings say by what it reaches the coordinator, and other nodes."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from helpers.made_certificates import Authority
from tandemlog.transport.security import Security
from tandemlog_server.node.certs.owners import OwnerKind
from tandemlog_server.node.preflight import faults
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.node_config import NodeConfig


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    made = Authority(tmp_path / "ours").make(OwnerKind.NODE, "n0", ["127.0.0.1"])
    return {
        "ca_file": str(tmp_path / "ours" / "ca.crt"),
        "cert_file": str(made),
        "key_file": str(made.with_suffix(".key")),
    }


def settings(**sections: dict[str, Any]) -> NodeConfig:
    coordinator = {"endpoints": ("127.0.0.1:1",), **sections.pop("coordinator", {})}
    listen = {"listen": "127.0.0.1:0", "http_listen": ""}
    return NodeConfig(cluster_id="tests", **listen, coordinator=coordinator, **sections)  # type: ignore[arg-type]


def test_the_files_of_the_node_serve_for_the_coordinator_too(files: dict[str, str]) -> None:
    assert settings(tls=files).coordinator_options().security == Security()
    found = settings(tls=files, coordinator={"tls": True}).coordinator_options().security
    assert found == Security(**files)  # type: ignore[arg-type]


def test_files_of_its_own_count_first(files: dict[str, str], tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    mine = {"ca_file": other.ca_file}
    found = settings(tls=files, coordinator=mine).coordinator_options().security
    assert found == Security(other.ca_file, files["cert_file"], files["key_file"])
    alone = settings(coordinator=mine).coordinator_options().security
    assert alone == Security(other.ca_file)


def test_faults_are_named(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"coordinator\.tls: give coordinator\.ca_file"):
        settings(coordinator={"tls": True}).coordinator_options()
    gone = settings(coordinator={"ca_file": str(tmp_path / "gone")}, store={"directory": tmp_path})
    with pytest.raises(ConfigError, match=r"coordinator: cannot read .*gone"):
        gone.coordinator_options()
    assert [str(each) for each in faults(gone) if "coordinator: cannot read" in str(each)]
    with pytest.raises(ValidationError, match="key_file is missing"):
        settings(coordinator={"cert_file": files["cert_file"]})


def test_what_is_shown_to_other_nodes(files: dict[str, str]) -> None:
    token = {"token_file": "/n0.token"}
    found = settings(tls=files, security=token)
    assert found.peer_security() == Security(**files, token_file="/n0.token")  # type: ignore[arg-type]
    config = found.ha_config(endpoint="a:1", http_endpoint="", store_host="127.0.0.1:1")
    assert config.security == found.peer_security()
