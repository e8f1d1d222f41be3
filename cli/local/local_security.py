"""What `tandemlog up --secure` makes: everything that protects a cluster, for one on this machine.

    DIR/secure/ca.crt ca.key              the authority
    DIR/secure/n0.crt n0.key n0.token …   of each node
    DIR/secure/coordinator.crt .key       of the coordinator, or of every member of etcd
    DIR/secure/operator.crt .key .token   an administrator's
    DIR/secure/access.toml                identities: the operator, and each node
    DIR/secure/clusters.toml              a profile: tandemlog --cluster local

Every connection is TLS with certificates of both sides, and every call has an identity. What is
there is kept, so that a second `up` finds what clients have copied; certificates that end within
RENEW_DAYS are renewed.
"""

import datetime
import shlex
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path

import tomlkit

from tandemlog.transport.security import Security
from tandemlog_server.node.access.access_editing import Grant, edited
from tandemlog_server.node.access.new_tokens import hash_of, new_token
from tandemlog_server.node.certs.authority import CertificateError
from tandemlog_server.node.certs.description import read_certificate
from tandemlog_server.node.certs.folder import (
    AUTHORITY,
    certificate_file,
    cluster_in,
    key_file,
    make_authority,
    make_certificate,
)
from tandemlog_server.node.certs.owners import Owner, OwnerKind
from tandemlog_server.node.private_files import write_secret

FOLDER = "secure"
OPERATOR = "operator"
COORDINATOR = "coordinator"
PROFILE = "local"
HOSTS = ("127.0.0.1", "localhost", "::1")
AUTHORITY_DAYS, DAYS, RENEW_DAYS = 3650, 365, 30


class LocalSecurity:
    """Below `directory`, of the cluster `cluster_id`."""

    def __init__(self, directory: Path, cluster_id: str) -> None:
        self.folder = directory.absolute() / FOLDER
        self._cluster_id = cluster_id

    @property
    def access_file(self) -> Path:
        return self.folder / "access.toml"

    def file(self, name: str, end: str) -> Path:
        """`end`: crt, key or token."""
        return self.folder / f"{name}.{end}"

    @property
    def authority(self) -> Path:
        return certificate_file(self.folder, AUTHORITY)

    @property
    def client(self) -> Security:
        """The operator's way in."""
        return Security(
            str(self.authority),
            str(self.file(OPERATOR, "crt")),
            str(self.file(OPERATOR, "key")),
            token_file=str(self.file(OPERATOR, "token")),
        )

    def client_context(self) -> ssl.SSLContext:
        """The same for HTTP."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.file(OPERATOR, "crt"), self.file(OPERATOR, "key"))
        return context

    def prepare(self, nodes: Sequence[str], endpoints: str) -> None:
        """Make what is missing. Raises CertificateError for the authority of another cluster."""
        now = datetime.datetime.now(datetime.UTC)
        if not self.authority.exists():
            make_authority(self.folder, self._cluster_id, AUTHORITY_DAYS, now)
        elif (name := cluster_in(self.folder)) != self._cluster_id:
            raise CertificateError(
                f"{self.folder} has the authority of the cluster {name!r}, and this one is "
                f"{self._cluster_id!r}: remove the folder, and new certificates are made"
            )
        owners = [(OwnerKind.NODE, name) for name in nodes]
        owners += [(OwnerKind.COORDINATOR, COORDINATOR), (OwnerKind.CLIENT, OPERATOR)]
        for kind, name in owners:
            if self._is_due(name, now):
                hosts = () if kind is OwnerKind.CLIENT else HOSTS
                owner = Owner(self._cluster_id, kind, name)
                make_certificate(self.folder, owner, hosts, DAYS, now)
        self._add_tokens([(OPERATOR, Grant(certificates=(OPERATOR,), admin=True))])
        self._add_tokens((name, Grant(node=name)) for name in nodes)
        self._write_profile(endpoints)

    def _is_due(self, name: str, now: datetime.datetime) -> bool:
        file = certificate_file(self.folder, name)
        if not file.exists() or not key_file(self.folder, name).exists():
            return True
        until = read_certificate(file.read_bytes(), str(file)).not_valid_after_utc
        return until - now < datetime.timedelta(days=RENEW_DAYS)

    def _add_tokens(self, grants: Iterable[tuple[str, Grant]]) -> None:
        for name, grant in grants:
            file = self.file(name, "token")
            if file.exists() and self.access_file.exists():
                continue
            token = new_token()
            with edited(self.access_file) as access:
                access.add_token(name, hash_of(token), grant)
            write_secret(file, token)

    def _write_profile(self, endpoints: str) -> None:
        values = {
            "endpoint": endpoints,
            "ca_file": self.authority.name,
            "cert_file": f"{OPERATOR}.crt",
            "key_file": f"{OPERATOR}.key",
            "token_file": f"{OPERATOR}.token",
        }
        text = tomlkit.dumps({PROFILE: values})
        write_secret(self.folder / "clusters.toml", text.rstrip())

    def how_to_connect(self) -> list[str]:
        """Lines for people: commands that work as they stand."""
        folder, client = shlex.quote(str(self.folder)), self.client
        options = (
            *("--ca-file", client.ca_file, "--cert-file", client.cert_file),
            *("--key-file", client.key_file, "--token-file", client.token_file),
        )
        return [
            f"connect: export TANDEMLOG_CONFIG_DIR={folder}; tandemlog --cluster {PROFILE} list",
            f"or by options: {shlex.join(options)}",
        ]
