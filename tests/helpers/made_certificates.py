"""Certificates for tests, by the product's own authority. Every folder is one authority."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import grpc

from tandemlog.transport.security import Security
from tandemlog_server.node.certs.folder import make_authority, make_certificate
from tandemlog_server.node.certs.owners import Owner, OwnerKind

CLUSTER = "tests"


class Authority:
    """An authority in `folder`, and the certificates that it makes there."""

    def __init__(self, folder: Path, cluster: str = CLUSTER) -> None:
        self.folder, self.cluster = folder, cluster
        make_authority(folder, cluster, 30, now())

    def replaced(self) -> "Authority":
        """Another authority in the same folder."""
        (self.folder / "ca.crt").unlink()
        (self.folder / "ca.key").unlink()
        return Authority(self.folder, self.cluster)

    @property
    def ca_file(self) -> str:
        return str(self.folder / "ca.crt")

    def node(
        self, name: str, hosts: Sequence[str] = ("127.0.0.1",), *, days_ago: float = 0
    ) -> grpc.ServerCredentials:
        """A node's, as a server takes them; every client needs a certificate of this authority."""
        return self.serving(self.make(OwnerKind.NODE, name, hosts, days_ago), required=True)

    def make(
        self, kind: OwnerKind, name: str, hosts: Sequence[str] = (), days_ago: float = 0
    ) -> Path:
        """Valid for a day from `days_ago` on."""
        at = now() - datetime.timedelta(days=days_ago)
        return make_certificate(self.folder, Owner(self.cluster, kind, name), hosts, 1, at)

    def serving(self, certificate: Path, *, required: bool = False) -> grpc.ServerCredentials:
        pair = (certificate.with_suffix(".key").read_bytes(), certificate.read_bytes())
        ca = (self.folder / "ca.crt").read_bytes()
        return grpc.ssl_server_credentials([pair], ca, require_client_auth=required)

    def client(self, name: str = "orders", *, days_ago: float = 0, **more: str) -> Security:
        """What a client with a certificate of its own has."""
        made = self.make(OwnerKind.CLIENT, name, (), days_ago)
        files = {"cert_file": str(made), "key_file": str(made.with_suffix(".key"))}
        return Security(**{"ca_file": self.ca_file, **files, **more})  # type: ignore[arg-type]


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
