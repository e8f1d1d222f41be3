"""The files of a Security, as they are now.

    current() ── a look at the files, once a second at most ──▶ unchanged: what is held
                                                            └─▶ changed: read, checked, held

A renewed certificate and its key come one after the other. What does not fit is reported once and
what is held stays in use, until a later look finds files that do. The first reading has nothing to
fall back on, so it raises.
"""

import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import own_grpc
from .security import Security, token_fault

if TYPE_CHECKING:
    import grpc

logger = logging.getLogger(__name__)

LOOK_S = 1.0
SPREAD_S = 15.0
"""In which all nodes have read a changed access file: a new token may be refused so long."""
Metadata = tuple[tuple[str, str], ...]
_Stamps = tuple[tuple[int, int, int], ...]


class SecurityFileError(Exception):
    """A file of certificates, a key or a token that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the files hold. `number` is another one whenever connections have to be made with
    other certificates."""

    number: int
    credentials: "grpc.ChannelCredentials | None"
    metadata: Metadata = field(default=(), repr=False)
    pem: tuple[bytes | None, ...] = field(default=(), repr=False)


class SecurityFiles:
    """See the module. `monotonic` gives seconds. Not for several threads."""

    def __init__(self, security: Security, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.security = security
        self._monotonic = monotonic
        self._held: Loaded | None = None
        self._stamps: _Stamps = ()
        self._looked_at = float("-inf")
        self._reported = ""
        self._token_at = float("-inf")

    @property
    def token_is_new(self) -> bool:
        """Whether the token was replaced a moment ago: some nodes may not know it yet."""
        return self._monotonic() - self._token_at < SPREAD_S

    def current(self, *, look: bool = False) -> Loaded:
        """What is valid now; `look`: at the files, although that was just done. Raises
        SecurityFileError where the files have never been usable."""
        loaded, now = self._held, self._monotonic()
        if loaded is not None and (
            not self.security.files or (not look and now - self._looked_at < LOOK_S)
        ):
            return loaded
        self._looked_at = now
        try:
            stamps = _stamps(self.security.files)
            if loaded is None or stamps != self._stamps:
                loaded = self._held = self._read(loaded)
                if _stamps(self.security.files) == stamps:
                    self._stamps = (
                        stamps  # else they changed meanwhile: read again at the next look
                    )
            self._reported = ""
        except SecurityFileError as error:
            if loaded is None:
                raise
            if str(error) != self._reported:
                self._reported = str(error)
                logger.warning("%s; what was read before stays in use", error)
        return loaded

    def _read(self, held: Loaded | None) -> Loaded:
        security = self.security
        pem = tuple(
            read_file(name, what) if name else None
            for name, what in (
                (security.ca_file, "ca_file"),
                (security.key_file, "key_file"),
                (security.cert_file, "cert_file"),
            )
        )
        metadata: Metadata = ()
        if token := self._token():
            metadata = (("authorization", f"Bearer {token}"),)
        if held is not None and held.metadata != metadata:
            self._token_at = self._monotonic()
        if held is not None and held.pem == pem:
            return Loaded(held.number, held.credentials, metadata, pem)
        number = 0 if held is None else held.number + 1
        if not security.tls:
            return Loaded(number, None, metadata, pem)
        check_files(security)
        own_grpc.ready()
        credentials = own_grpc.grpc.ssl_channel_credentials(*pem)
        return Loaded(number, credentials, metadata, pem)

    def _token(self) -> str:
        if not self.security.token_file:
            return self.security.token
        name = self.security.token_file
        try:
            token = read_file(name, "token_file").decode("ascii").strip()
        except UnicodeDecodeError:
            token = " "
        fault = token_fault(token)
        if fault:
            raise SecurityFileError(f"token_file {name}: {fault}")
        return token


def check_files(security: Security) -> None:
    """Raises SecurityFileError for files that hold something else, or do not fit each other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if security.ca_file:
        try:
            context.load_verify_locations(security.ca_file)
        except (ssl.SSLError, OSError) as error:
            raise SecurityFileError(
                f"ca_file {security.ca_file}: no certificates in PEM: {reason_of(error)}"
            ) from error
    if security.cert_file:
        try:
            context.load_cert_chain(security.cert_file, security.key_file, password=_no_password)
        except (ssl.SSLError, OSError, _EncryptedError) as error:
            raise SecurityFileError(_pair_fault(security, error)) from error


class _EncryptedError(Exception):
    pass


def _no_password() -> str:
    raise _EncryptedError("the key is encrypted; give one that is not")


def _pair_fault(security: Security, problem: Exception) -> str:
    if isinstance(problem, _EncryptedError):
        return f"key_file {security.key_file}: {problem}"
    reason = getattr(problem, "reason", "") or ""
    if "MISMATCH" in reason:
        return f"key_file {security.key_file} does not fit the certificate in {security.cert_file}"
    return (
        f"cert_file {security.cert_file} and key_file {security.key_file}: not a certificate and "
        f"its key in PEM: {reason_of(problem)}"
    )


def reason_of(problem: Exception) -> str:
    """In a few words."""
    if isinstance(problem, ssl.SSLError):
        return (problem.reason or "nothing of that kind in it").lower().replace("_", " ")
    return getattr(problem, "strerror", None) or str(problem)


def read_file(name: str, what: str) -> bytes:
    """Raises SecurityFileError, which names the file and `what` it is."""
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as error:
        raise SecurityFileError(f"cannot read {what} {name}: {error.strerror}") from error


def _stamps(names: tuple[str, ...]) -> _Stamps:
    stamps = []
    for name in names:
        try:
            status = os.stat(name)
        except OSError as error:
            raise SecurityFileError(f"cannot read {name}: {error.strerror}") from error
        stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(stamps)
