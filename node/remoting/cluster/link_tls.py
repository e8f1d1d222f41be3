"""TLS of the connections between the doors of two nodes (master_link.py).

The master is known by its certificate, as clients know it. This node shows none of its own: what
goes over the connection are requests of clients, which prove by their signatures who they are, and
a certificate of a node would lend them its rights.
"""

import ssl

from ...settings.security_sections import TlsSection


class LinkTls:
    """`context` for each new connection, so that replaced files count."""

    def __init__(self, section: TlsSection) -> None:
        self._section = section

    def context(self) -> ssl.SSLContext | None:
        """None where nodes have no TLS. Raises OSError for a file that cannot be read."""
        if not self._section.serves:
            return None
        return ssl.create_default_context(cafile=self._section.ca_file or None)
