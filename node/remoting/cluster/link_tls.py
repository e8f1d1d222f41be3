"""TLS of the connections between the doors of two nodes (master_link.py).

The master is known by its certificate, as clients know it. This node shows its own only where a
master lets no connection in without one: what goes over the connection are requests of clients,
which prove by their signatures who they are. Each is marked as handed on, so the certificate lends
it no rights (door/remoting_proofs.py).
"""

import ssl
from pathlib import Path

import grpc

from ...settings.security_sections import TlsSection


class LinkTls:
    """`context` for each new connection, so that replaced files count."""

    def __init__(self, section: TlsSection) -> None:
        self._section = section

    def context(self) -> ssl.SSLContext | None:
        """None where nodes have no TLS. Raises OSError for a file that cannot be read."""
        if not self._section.serves:
            return None
        context = ssl.create_default_context(cafile=self._section.ca_file or None)
        if self._section.requires_certificates:
            context.load_cert_chain(self._section.cert_file, self._section.key_file)
        return context

    def credentials(self) -> grpc.ChannelCredentials | None:
        """The same for a channel of gRPC."""
        section = self._section
        if not section.serves:
            return None
        roots = _read(section.ca_file) if section.ca_file else None
        if not section.requires_certificates:
            return grpc.ssl_channel_credentials(roots)
        key, chain = _read(section.key_file), _read(section.cert_file)
        return grpc.ssl_channel_credentials(roots, key, chain)


def _read(name: str) -> bytes:
    return Path(name).read_bytes()
