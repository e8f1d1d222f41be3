"""An identity and its rights, and how a caller's proof leads to one.

    bearer token ──SHA-256──▶ tokens of the access file ─────────────▶ Identity
    certificate  ──names────▶ tandemlog://CLUSTER/node/ID ───────────▶ the node itself
                              tandemlog://CLUSTER/client/NAME ┐
                              no such URI: its common name    ┴─ its certificates ─▶ Identity

A token wins over a certificate: a caller that shows one wants to be known by it. An unknown token
is refused, whatever the certificate says. No object here keeps a token. An access key, by which
RocketMQ's clients sign, stands beside the tokens, and its secret is kept: a signature can be
checked by that alone.
"""

import datetime
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tandemlog.format.words import quoted

from .patterns import Patterns

SCHEME = "tandemlog://"
HASH = "sha256:"
"""In front of what the access file has of a token."""


class Right(StrEnum):
    """What an identity may have."""

    READ = "read"
    WRITE = "write"
    CONSUME = "consume"
    ADMIN = "admin"
    NODE = "node"


NOUNS = {Right.READ: "topic", Right.WRITE: "topic", Right.CONSUME: "group"}


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """What one connection or one identity may use at a time and per second; 0: no limit."""

    calls: int = 0
    streams: int = 0
    long_polls: int = 0
    bytes_in_flight: int = 0
    calls_per_s: int = 0
    bytes_per_s: int = 0


NO_LIMITS = CallerLimits()
NOTHING = Patterns(())
EVERYTHING = Patterns(("*",))


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """A name with its rights. `node` is the id of the node that it may replicate as."""

    name: str
    read: Patterns = NOTHING
    write: Patterns = NOTHING
    consume: Patterns = NOTHING
    admin: bool = False
    node: str = ""
    limits: CallerLimits = NO_LIMITS
    _rights: Mapping[Right, Patterns] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        patterns = {Right.READ: self.read, Right.WRITE: self.write, Right.CONSUME: self.consume}
        rights = dict.fromkeys(patterns, EVERYTHING) if self.admin else patterns
        object.__setattr__(self, "_rights", MappingProxyType(rights))

    def patterns(self, right: Right) -> Patterns:
        """The names that `right` (read, write, consume) covers."""
        return self._rights[right]

    def may(self, right: Right, name: str) -> bool:
        return self._rights[right].cover(name)

    def may_see(self, topic: str) -> bool:
        """Whether this identity may know that there is such a topic."""
        return self.may(Right.READ, topic) or self.may(Right.WRITE, topic)


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names in a certificate: its URIs of tandemlog, and its common name; and its end."""

    uris: tuple[str, ...] = ()
    common_name: str = ""
    until: datetime.datetime | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return ", ".join(map(quoted, self.uris)) or f"the common name {quoted(self.common_name)}"


@dataclass(frozen=True, slots=True)
class CertifiedAs:
    """What a certificate says to one cluster: a node of it, or the name of a client; `fault` is why
    it says neither. `until`: when it expires."""

    node: str = ""
    client: str = ""
    fault: str = ""
    until: datetime.datetime | None = None


def certified_as(names: CertificateNames, cluster_id: str) -> CertifiedAs:
    """What `names` mean in the cluster `cluster_id`."""
    if not names.uris:
        if names.common_name:
            return CertifiedAs(client=names.common_name)
        return CertifiedAs(fault="the certificate names no one: it has no URI and no common name")
    clusters = []
    for uri in names.uris:
        cluster, kind, name = _parts(uri)
        if cluster == cluster_id and name and kind in ("node", "client"):
            return CertifiedAs(node=name) if kind == "node" else CertifiedAs(client=name)
        clusters.append(cluster)
    if cluster_id in clusters:
        return CertifiedAs(
            fault=f"the certificate's name {names} must have the form "
            f"{SCHEME}{cluster_id}/node/ID or {SCHEME}{cluster_id}/client/NAME"
        )
    return CertifiedAs(
        fault=f"the certificate is of the cluster {quoted(clusters[0])}, and this is "
        f"{quoted(cluster_id)}"
    )


def _parts(uri: str) -> tuple[str, str, str]:
    """Cluster, kind and name; a name with a slash in it is returned empty, and fits nothing."""
    cluster, _, rest = uri.removeprefix(SCHEME).partition("/")
    kind, _, name = rest.partition("/")
    return cluster, kind, "" if "/" in name else name


def digest_of(token: str) -> bytes:
    """The SHA-256 of a token, by which it is looked up."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Access:
    """The identities of one access file. `tokens` are hashes; `keys` have the identity and the
    secret of each access key."""

    def __init__(
        self,
        identities: Iterable[Identity] = (),
        tokens: Mapping[bytes, Identity] = MappingProxyType({}),
        certificates: Mapping[str, Identity] = MappingProxyType({}),
        keys: Mapping[str, tuple[Identity, str]] = MappingProxyType({}),
    ) -> None:
        self.identities = tuple(identities)
        self._tokens = dict(tokens)
        self._certificates = dict(certificates)
        self._keys = dict(keys)
        self._nodes = {each.node: each for each in reversed(self.identities) if each.node}

    def of_token(self, token_hash: bytes) -> Identity | None:
        return self._tokens.get(token_hash)

    def of_key(self, access_key: str) -> tuple[Identity, str] | None:
        """The identity and the secret of an access key."""
        return self._keys.get(access_key)

    def of_certificate(self, name: str) -> Identity | None:
        return self._certificates.get(name)

    def of_node(self, node_id: str) -> Identity:
        """The first identity with that node, for its other rights; else one with none."""
        return self._nodes.get(node_id) or Identity(f"node/{node_id}", node=node_id)
