"""Whom the embedded coordinator lets in.

Who may change the coordinator's keys decides who leads the cluster. So among the certificates of
the authority those of nodes and of coordinators are let in; one of a client only if it is named:
an operator with `etcdctl`. A certificate without a URI of tandemlog, as other authorities make
them, is known by its common name, and has to be named too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from ..access.certificates import names_in_pem
from ..access.identities import CertificateNames
from ..certs.owners import OwnerKind, owner_of

Credentials = Callable[[], grpc.ServerCredentials]
REMEMBERED = 1_024


@dataclass(slots=True)
class Protection:
    """`credentials` are for the port. `required`: a caller shows a certificate, and `clients` are
    those that are let in beside nodes and coordinators."""

    credentials: Credentials
    required: bool = True
    clients: frozenset[str] = frozenset()
    _known: dict[bytes, tuple[str, str]] = field(default_factory=dict)

    def seen(self, context: Any) -> tuple[str, str]:
        """Why a caller is not let in, empty if it is; and what its certificate names, empty where
        none is required."""
        if not self.required:
            return "", ""
        shown = context.auth_context().get("x509_pem_cert", ())
        if not shown:
            return "coordinator: a client certificate is required", ""
        if shown[0] not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[shown[0]] = seen_in(shown[0], self.clients)
        return self._known[shown[0]]


def seen_in(certificate: bytes, clients: frozenset[str]) -> tuple[str, str]:
    """Why the owner of a certificate (PEM) is not let in, empty if it is; and its names."""
    try:
        names = names_in_pem(certificate)
    except ValueError:
        return "coordinator: the certificate cannot be read", ""
    return _fault_in(names, clients), str(names)


def _fault_in(names: CertificateNames, clients: frozenset[str]) -> str:
    owners = [owner for owner in map(owner_of, names.uris) if owner is not None]
    if any(owner.kind is not OwnerKind.CLIENT or owner.name in clients for owner in owners):
        return ""
    if not names.uris and names.common_name in clients:
        return ""
    return (
        f"coordinator: the certificate of {names} is not that of a node; the coordinator's "
        "--allow-client names others that may come"
    )
