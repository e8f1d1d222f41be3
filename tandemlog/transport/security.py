"""What a connection is made with: the files of TLS, and the token that names the caller."""

import ipaddress
import os
from dataclasses import dataclass, field, fields

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Security:
    """How a client proves who it is, and how it knows the nodes.

    `ca_file` has the authorities that may have signed the nodes' certificates. With it, or with a
    certificate of the client's own, a connection uses TLS; without `ca_file` the authorities are
    those that gRPC brings along. `cert_file` and `key_file` are the client's certificate and its
    key, `token` or `token_file` its bearer token. All are PEM, or text, and are read again when
    they change: new connections use the new certificates, new calls the new token.

    `server_name` is the name in the nodes' certificates where that is not the host of their
    endpoints. A token is not sent in clear text to another machine, unless `insecure`.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    server_name: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name.endswith("_file"):
                object.__setattr__(self, each.name, os.fspath(getattr(self, each.name)))
        if bool(self.cert_file) is not bool(self.key_file):
            missing = "key_file" if self.cert_file else "cert_file"
            raise ValueError(
                f"{missing} is missing: a certificate and its key are given both or not at all"
            )
        if self.token and self.token_file:
            raise ValueError("token and token_file exclude each other: give one of them")
        if self.token and (fault := token_fault(self.token)):
            raise ValueError(f"token: {fault}")
        if self.server_name and not self.tls:
            raise ValueError("server_name is compared with certificates: give ca_file too")

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return bool(self.ca_file or self.cert_file)

    @property
    def files(self) -> tuple[str, ...]:
        """Those that are read."""
        return tuple(filter(None, (self.ca_file, self.cert_file, self.key_file, self.token_file)))

    def fault_with(self, endpoint: str) -> str:
        """Why a connection to host:port `endpoint` would give the token away; empty if it would
        not."""
        if self.tls or self.insecure or not (self.token or self.token_file):
            return ""
        if is_loopback(endpoint):
            return ""
        return (
            f"{endpoint}: a token must not travel there in clear text: give ca_file, or say "
            "insecure where the network itself is trusted"
        )


def token_fault(token: str) -> str:
    """Why `token` cannot be sent; empty if it can. The text does not have the token."""
    if not token:
        return "it is empty"
    if not (token.isascii() and token.isprintable()) or " " in token:
        return "it must be one line of ASCII without spaces"
    return ""


def is_loopback(endpoint: str) -> bool:
    """Whether host:port `endpoint` is on this machine, by its text alone."""
    host = endpoint.rpartition(":")[0].strip("[]").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
