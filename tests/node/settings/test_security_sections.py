"""Who may reach a node: loopback, or TLS and a proof of who calls, or a word that says so."""

from typing import Any

import pytest
from pydantic import ValidationError

from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.security_sections import is_loopback

TLS = {"ca_file": "ca", "cert_file": "cert", "key_file": "key"}
WIDE = {"listen": "0.0.0.0:7100", "advertise": "h:7100"}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listen": "localhost:1"},
        {"listen": "[::1]:1", "http_listen": ""},
        {**WIDE, "insecure": True},
        {**WIDE, "tls": TLS, "security": {"access_file": "access.toml"}},
        {**WIDE, "tls": {**TLS, "client_certificates": "required"}},
    ],
)
def test_a_node_starts_on_loopback_or_protected(settings: dict[str, Any]) -> None:
    NodeConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (WIDE, "listen: other machines reach 0.0.0.0, and this node lacks TLS"),
        ({"http_listen": "[::]:1"}, "http_listen: other machines reach ::, and"),
        ({"listen": "10.0.0.1:1"}, "other machines reach 10.0.0.1"),
        ({"listen": "n1.example:1"}, "other machines reach n1.example"),
        ({**WIDE, "tls": TLS}, "lacks a proof of who calls"),
        ({**WIDE, "security": {"access_file": "x"}}, "lacks TLS"),
    ],
)
def test_a_node_that_others_reach_names_the_key_and_the_ways_out(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        NodeConfig(**settings)
    text = str(refused.value)
    assert said in text
    assert "tls.cert_file" in text
    assert "security.access_file" in text
    assert "insecure = true" in text


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"cert_file": "c"}, "cert_file needs key_file"),
        ({"key_file": "k"}, "key_file needs cert_file"),
        ({"client_certificates": "required"}, "needs ca_file, cert_file and key_file"),
    ],
)
def test_files_that_need_each_other(tls: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        NodeConfig(tls=tls)


def test_addresses_of_this_machine_only() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example")))
