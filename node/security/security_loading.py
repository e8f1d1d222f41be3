"""Reads and checks every file of [tls] and [security]; one clear line for each fault.

`check_security` reads all of them and changes nothing: a node does the same at its start, and a
check of a configuration does it without starting one.
"""

import datetime
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from ..access.access_file import AccessFileError, parse_access
from ..access.certificates import (
    CertificateFileError,
    check_authorities,
    check_pair,
    names_in_pem,
)
from ..access.identities import Access, certified_as
from ..settings.config_error import ConfigError
from ..settings.node_config import NodeConfig
from ..settings.security_sections import TlsSection

MAX_FILE_BYTES = 16 << 20

Read = Callable[[str], bytes]


@dataclass(frozen=True, slots=True, repr=False)
class TlsFiles:
    """What TLS is served with; `authorities` is empty if there is no ca_file."""

    authorities: bytes
    certificate: bytes
    key: bytes
    expires_at: datetime.datetime


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def read_file(name: str) -> bytes:
    """The content of the file `name`. Raises OSError, also for what is no file: a pipe that no
    process writes to would hold up every later look at the files."""
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    with os.fdopen(handle, "rb") as file:
        return file.read(MAX_FILE_BYTES)


def check_security(
    config: NodeConfig,
    *,
    read: Read = read_file,
    now: Callable[[], datetime.datetime] = utc_now,
) -> None:
    """Raises ConfigError with a line for each file that cannot be used."""
    faults = []
    for load in (
        lambda: load_tls(config, read=read, now=now()),
        lambda: load_access(config, read=read),
        lambda: load_token(config, read=read),
    ):
        try:
            load()
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))


def load_tls(config: NodeConfig, *, read: Read, now: datetime.datetime) -> TlsFiles | None:
    """The files that this node serves TLS with; None if it does not. Raises ConfigError."""
    section = config.tls
    authorities = _content("tls.ca_file", section.ca_file, read) if section.ca_file else b""
    try:
        if authorities:
            check_authorities(section.ca_file, authorities, now)
        if not section.serves:
            return None
        certificate = _content("tls.cert_file", section.cert_file, read)
        key = _content("tls.key_file", section.key_file, read)
        pair = (section.cert_file, certificate), (section.key_file, key)
        expires_at = check_pair(*pair, now)
    except CertificateFileError as error:
        raise ConfigError(f"tls: {error}") from None
    _check_own_name(config, section, certificate)
    return TlsFiles(authorities, certificate, key, expires_at)


def _check_own_name(config: NodeConfig, section: TlsSection, certificate: bytes) -> None:
    """A certificate that names a node has to name this one: the others would refuse it."""
    names = names_in_pem(certificate)
    if not names.uris:
        return
    certified = certified_as(names, config.cluster_id)
    fault = certified.fault
    if not fault and certified.node != config.node_id:
        fault = f"the certificate is of {names}, and this is node {config.node_id!r}"
    if fault:
        raise ConfigError(f"tls.cert_file: {section.cert_file}: {fault}")


def load_access(config: NodeConfig, *, read: Read) -> Access | None:
    """The identities of the access file; None if there is none. Raises ConfigError."""
    name = config.security.access_file
    if not name:
        return None
    try:
        text = _content("security.access_file", name, read).decode()
        return parse_access(text, name)
    except UnicodeDecodeError:
        raise ConfigError(f"security.access_file: {name} is not UTF-8") from None
    except AccessFileError as error:
        raise ConfigError(f"security.access_file: {error}") from None


def load_token(config: NodeConfig, *, read: Read) -> str:
    """The token that this node shows to others; empty if it has none. Raises ConfigError."""
    name = config.security.token_file
    if not name:
        return ""
    try:
        token = _content("security.token_file", name, read).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or len(token.split()) != 1:
        raise ConfigError(f"security.token_file: {name} must hold one token and nothing else")
    return token


def _content(key: str, name: str, read: Read) -> bytes:
    try:
        return read(name)
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {name}: {error.strerror}") from error
