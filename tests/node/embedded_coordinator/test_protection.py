"""Which certificates the embedded coordinator lets in."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from helpers.made_certificates import Authority
from tandemlog_server.node.certs.owners import OwnerKind
from tandemlog_server.node.embedded_coordinator.protection import Protection, seen_in


class Call:
    """As much of a call as is looked at."""

    def __init__(self, certificate: bytes | None) -> None:
        self.shown = certificate

    def auth_context(self) -> dict[str, Any]:
        return {} if self.shown is None else {"x509_pem_cert": [self.shown]}


def no_port() -> grpc.ServerCredentials:
    raise AssertionError("no server here")


@pytest.mark.parametrize(
    ("kind", "name", "let_in"),
    [
        (OwnerKind.NODE, "n0", True),
        (OwnerKind.COORDINATOR, "c0", True),
        (OwnerKind.CLIENT, "operator", True),
        (OwnerKind.CLIENT, "orders", False),
    ],
)
def test_nodes_and_named_clients(kind: OwnerKind, name: str, let_in: bool, tmp_path: Path) -> None:
    made = Authority(tmp_path).make(kind, name, ["127.0.0.1"]).read_bytes()
    protection = Protection(no_port, clients=frozenset({"operator"}))
    for _ in range(2):  # the second one is remembered
        assert (protection.seen(Call(made))[0] == "") is let_in
    if not let_in:
        assert "client/orders" in protection.seen(Call(made))[0]
        assert "--allow-client" in protection.seen(Call(made))[0]


def test_without_a_certificate() -> None:
    assert "is required" in Protection(no_port).seen(Call(None))[0]
    assert Protection(no_port, required=False).seen(Call(None))[0] == ""


def test_a_certificate_of_another_kind_of_authority(tmp_path: Path) -> None:
    """The authority's own has no URI: it is known by its common name, and has to be named."""
    Authority(tmp_path, "c")
    made = (tmp_path / "ca.crt").read_bytes()
    assert seen_in(made, frozenset())[0]
    assert not seen_in(made, frozenset({"tandemlog authority of c"}))[0]
    assert "cannot be read" in seen_in(b"x", frozenset())[0]
