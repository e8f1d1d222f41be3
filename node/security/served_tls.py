"""The certificates that gRPC and HTTP serve with, which can be replaced between two connections.

    replace ──▶ gRPC: asked by its library at each new connection, from a thread of the library
            ──▶ HTTP: a context whose connections begin with the newest one

gRPC asks callers for a certificate, or does not. HTTP asks and does not insist: which paths need
one is decided for each request, so that probes may come without.
"""

import logging
import os
import ssl
import threading
from collections.abc import Callable
from typing import Any, cast

import grpc

from ..settings.config_error import ConfigError
from .security_loading import TlsFiles

logger = logging.getLogger(__name__)


class ServedTls:
    """See the module. `replace` may be called from any thread."""

    def __init__(self, files: TlsFiles, *, certificates_required: bool) -> None:
        self._required = certificates_required
        self._lock = threading.Lock()
        self._fresh: grpc.ServerCertificateConfiguration | None = None
        self._files = files
        self.http_context = NewestContext(_context(files))

    @property
    def files(self) -> TlsFiles:
        return self._files

    def replace(self, files: TlsFiles) -> None:
        """New connections use `files` from here on. Raises ssl.SSLError, and keeps the old ones,
        for what cannot be used."""
        context = _context(files)
        with self._lock:
            self._files, self._fresh = files, _configuration(files, self._required)
        self.http_context.newest = context

    def reload(self, load: Callable[[], TlsFiles], cert_file: str) -> None:
        """Use the files that `load` reads, if they can be used; one line of the log either way."""
        try:
            files = load()
            self.replace(files)
        except (ConfigError, ssl.SSLError) as error:
            logger.error("the new certificates are not used, the old ones stay: %s", error)
        else:
            until = files.expires_at.isoformat(timespec="seconds")
            logger.info("new certificates are in use: %s, valid until %s", cert_file, until)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For the port of a server."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._files, self._required),
            cast("Any", self._pop_fresh),  # None: nothing new, which its stubs do not know
            require_client_authentication=self._required,
        )

    def _pop_fresh(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            fresh, self._fresh = self._fresh, None
        return fresh


class NewestContext(ssl.SSLContext):
    """Connections begin with `newest`: a server keeps the context that it was started with, and one
    context forgets no authority that it has ever loaded."""

    newest: ssl.SSLContext

    def __new__(cls, newest: ssl.SSLContext) -> "NewestContext":
        context = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        context.newest = newest
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.newest.wrap_bio(*args, **kwargs)


def _configuration(files: TlsFiles, required: bool) -> grpc.ServerCertificateConfiguration:
    # authorities that are given are asked for: without `required` they would be of no use
    authorities = files.authorities if required else None
    return grpc.ssl_server_certificate_configuration(
        [(files.key, files.certificate)], root_certificates=authorities
    )


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # the library reads files only: these are in memory, so what was checked is what is loaded
    with _InMemory(files.certificate) as certificate, _InMemory(files.key) as key:
        context.load_cert_chain(certificate.path, key.path)
    if files.authorities:
        context.load_verify_locations(cadata=files.authorities.decode("ascii", "replace"))
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


class _InMemory:
    """A file that is in memory only, while it is open."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> "_InMemory":
        self._descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
        os.write(self._descriptor, self._content)
        self.path = f"/proc/self/fd/{self._descriptor}"
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
