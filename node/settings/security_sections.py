"""The sections [tls] and [security] of a node's settings, and the rule about who may reach a node.

    listen, http_listen      TLS and a proof of who calls      starts
    loopback                 any                               yes
    any other address        yes                               yes
    any other address        no                                only with insecure = true

A proof is an access file or a required client certificate: TLS alone hides what strangers read and
write, and lets them do both.
"""

import ipaddress
from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import model_validator

from .sections import Section


class TlsSection(Section):
    """Certificates for everything that this node serves, and for its connections to other nodes.
    Replaced files are used for new connections from then on, without a restart."""

    ca_file: str = ""
    """PEM file of the authorities whose certificates this node accepts."""
    cert_file: str = ""
    """PEM file of this node's certificate, and of those between it and the authority; given, gRPC
    and HTTP are served by TLS only."""
    key_file: str = ""
    """PEM file of its key, without a password."""
    client_certificates: Literal["none", "required"] = "none"
    """required: every caller has to show a certificate of an authority in ca_file."""
    reload_interval_ms: Annotated[int, Ge(10)] = 5_000
    """Time between two checks whether the files of [tls] or the access file have changed."""

    @model_validator(mode="after")
    def _fits_together(self) -> "TlsSection":
        if bool(self.cert_file) != bool(self.key_file):
            present, lacking = (
                ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            )
            raise ValueError(f"{present} needs {lacking} beside it")
        if self.client_certificates == "required" and not (self.ca_file and self.cert_file):
            raise ValueError(
                'client_certificates = "required" needs ca_file, cert_file and key_file'
            )
        return self

    @property
    def serves(self) -> bool:
        """Whether this node serves by TLS."""
        return bool(self.cert_file)

    @property
    def requires_certificates(self) -> bool:
        return self.client_certificates == "required"


class SecuritySection(Section):
    """Who may do what on this node; docs/security.md has the format of the access file."""

    access_file: str = ""
    """TOML file of the identities and their rights; it is looked at again every
    tls.reload_interval_ms. Empty means that every caller may do everything."""
    token_file: str = ""
    """File with the token that this node shows to other nodes; read again when it changes."""
    open_health: bool = False
    """Whether health checks (gRPC's, and the health paths of HTTP) need no identity."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`. A name other than localhost counts as one that
    others reach: what it resolves to may change."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def exposure_fault(
    addresses: dict[str, str], tls: TlsSection, security: SecuritySection, *, insecure: bool
) -> str:
    """Why a node must not listen on these `addresses` (key -> host); empty if it may."""
    proven = bool(security.access_file) or tls.requires_certificates
    if insecure or (tls.serves and proven):
        return ""
    for key, host in addresses.items():
        if not is_loopback(host):
            lacking = "TLS" if not tls.serves else "a proof of who calls"
            return (
                f"{key}: other machines reach {host}, and this node lacks {lacking}. Set "
                "tls.cert_file and tls.key_file, and either security.access_file or "
                'tls.client_certificates = "required"; or listen on 127.0.0.1; or, where every '
                "machine of the network is trusted, set insecure = true"
            )
    return ""
