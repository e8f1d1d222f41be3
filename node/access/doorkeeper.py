"""Knows every caller of a node: who it is, what it uses, and what is logged of it.

    proof (token, certificate) ──▶ identify ──▶ Who ──▶ Caller of one call
                                      ▲                    │ renew: with each request of a stream
    access file replaced ──▶ version + 1 ◀─────────────────┘

gRPC and HTTP come with the same two proofs, so the rules are here once. A replaced access file
counts from the next request on: who was identified by an earlier version is looked up again. TLS
checks a certificate when a connection begins and never again, so each request checks here that it
has not expired. Certificates are remembered by their bytes, never by the
connection: another caller may come from the same address and port a moment later.
"""

import datetime
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from tandemlog.format.words import quoted

from .access_refusals import DeniedError, NotKnownError
from .audit_log import AuditLog
from .caller import Caller, Who
from .certificates import names_in_der, names_in_pem
from .identities import (
    NO_LIMITS,
    Access,
    CallerLimits,
    CertificateNames,
    CertifiedAs,
    Identity,
    certified_as,
    digest_of,
)
from .usage import Usage

REMEMBERED = 4_096
MET = 1 << 15
"""How many connections are remembered whose caller was let in."""
NO_PROOF = (
    "this node has to know who calls: send the token of an identity (authorization: Bearer …), or "
    "show a client certificate that it knows"
)
NO_CERTIFICATE = "this node has to know who calls: show a client certificate of its cluster"
UNKNOWN_TOKEN = "the token is not one of the access file of this node: it may have been revoked"
UNKNOWN_KEY = (
    "the access key is not one of the access file of this node: it may have been taken out"
)
EXPIRED = "the certificate has expired since this connection began: connect with a renewed one"
PASS = "tandemlog-pass-"
PASS_OF_ANOTHER = (
    "this node has not seen the certificate by which you are logged in: open its own console"
)
BAD_HEADER = "the authorization must be: Bearer, a space, and the token of an identity"


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Doorkeeper:
    """See the module. `access` is None where there is no access file. Belongs to the loop."""

    def __init__(
        self,
        cluster_id: str,
        *,
        monotonic: Callable[[], float],
        access: Access | None = None,
        certificates_required: bool = False,
        open_health: bool = False,
        connection_limits: CallerLimits = NO_LIMITS,
        now: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._now = now
        self._cluster_id = cluster_id
        self._access = access
        self.certificates_required = certificates_required
        self.monotonic = monotonic
        self.active = access is not None or certificates_required
        self.open_health = open_health
        self.audit = AuditLog(monotonic)
        self._version = 1
        self._certificates: dict[bytes, CertifiedAs] = {}
        self._connection_limits = connection_limits
        self._connections: OrderedDict[str, Usage] = OrderedDict()
        self._identities: dict[str, Usage] = {}
        self.streaming: set[str] = set()
        """Connections with a stream of replication, which is no call of a client."""
        self._met: OrderedDict[str, None] = OrderedDict()
        self._passes: dict[bytes, bytes] = {}
        self.callers: set[Caller] = set()
        """Of all calls in progress."""

    # ---- who

    def replace_access(self, access: Access) -> None:
        """From the next request on, these identities count."""
        self._access = access
        self._version += 1
        now = self.monotonic()
        rows = {each.name: each for each in access.identities}
        for name in list(self._identities):
            usage = self._identities[name]
            if name in rows:
                if usage.limits != rows[name].limits:
                    usage.set_limits(rows[name].limits, now)
            elif usage.idle:
                del self._identities[name]

    def identify(self, authorization: str, certificate: bytes | None) -> Who:
        """Who calls, by the value of its header `authorization` (empty: none) and its certificate
        in PEM or DER. Raises NotKnownError."""
        if (lent := self._passed(authorization)) is not None:
            return self._who(None, lent)
        return self._who(self._token_hash(authorization), certificate)

    def give_pass(self, certificate: bytes) -> str:
        """A token that stands for the holder of `certificate` at this node, until it is given to
        `take_pass`: for a part of this node that calls it on behalf of a caller, whose certificate
        it cannot show. Whether the certificate counts is decided at each call."""
        token = PASS + secrets.token_urlsafe(32)
        self._passes[digest_of(token)] = certificate
        return token

    def take_pass(self, token: str) -> None:
        """From now on `token` is unknown."""
        self._passes.pop(digest_of(token), None)

    def _passed(self, authorization: str) -> bytes | None:
        """The certificate that the pass in `authorization` stands for; None if it has no pass.
        Raises NotKnownError for a pass of another node: the connection's own certificate is that of
        the node, and not the caller's."""
        token = authorization.partition(" ")[2].strip()
        if not token.startswith(PASS):
            return None
        certificate = self._passes.get(digest_of(token))
        if certificate is None:
            raise NotKnownError(PASS_OF_ANOTHER)
        return certificate

    def identify_key(self, access_key: str, certificate: bytes | None) -> tuple[Who, str]:
        """Who has this access key, and the secret by which the caller must have signed what it
        sent. Raises NotKnownError."""
        who = self._who(None, certificate, access_key)
        access = self._access
        found = None if access is None else access.of_key(access_key)
        if found is None:
            raise NotKnownError(UNKNOWN_KEY)
        return who, found[1]

    def check_token(self, authorization: str) -> None:
        """Refuse what can be refused before the certificate is known. Raises NotKnownError."""
        if self._passed(authorization) is not None:
            return
        token_hash = self._token_hash(authorization)
        if token_hash is None:
            if not self.certificates_required:
                raise NotKnownError(NO_PROOF)
        elif self._access is not None and self._access.of_token(token_hash) is None:
            raise NotKnownError(UNKNOWN_TOKEN)

    def _token_hash(self, authorization: str) -> bytes | None:
        """None without a token, or without an access file."""
        if not authorization or self._access is None:
            return None
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise NotKnownError(BAD_HEADER)
        return digest_of(token.strip())

    def renew(self, who: Who) -> None:
        """Look `who` up again if the access file was replaced, or its certificate has expired.
        Raises NotKnownError."""
        if who.version == self._version and (who.until is None or self._now() < who.until):
            return
        fresh = self._who(who.token_hash, who.certificate, who.access_key)
        who.identity, who.nodes, who.version = fresh.identity, fresh.nodes, fresh.version
        who.proof_fault, who.until = fresh.proof_fault, fresh.until

    def _who(
        self, token_hash: bytes | None, certificate: bytes | None, access_key: str = ""
    ) -> Who:
        certified = CertifiedAs() if certificate is None else self._certified(certificate)
        if certified.until is not None and self._now() >= certified.until:
            certified = CertifiedAs(fault=EXPIRED)
        identity = self._identity(token_hash, certificate, certified, access_key)
        nodes = {identity.node, certified.node} - {""}
        about = token_hash, certificate, self._version, certified.until, access_key
        return Who(identity, frozenset(nodes), certified.fault, *about)

    def _identity(
        self,
        token_hash: bytes | None,
        certificate: bytes | None,
        certified: CertifiedAs,
        access_key: str,
    ) -> Identity:
        access = self._access
        if access_key:
            found = None if access is None else access.of_key(access_key)
            if found is None:
                raise NotKnownError(UNKNOWN_KEY)
            return found[0]
        if access is None:
            if certificate is None:
                raise NotKnownError(NO_CERTIFICATE)
            if certified.fault:
                raise NotKnownError(certified.fault)
            name = f"node/{certified.node}" if certified.node else certified.client
            return Identity(name, admin=True, node=certified.node)
        if token_hash is not None:
            identity = access.of_token(token_hash)
            if identity is None:
                raise NotKnownError(UNKNOWN_TOKEN)
            return identity
        if certificate is None:
            raise NotKnownError(NO_PROOF)
        if certified.fault:
            raise NotKnownError(certified.fault)
        if certified.node:
            return access.of_node(certified.node)
        identity = access.of_certificate(certified.client)
        if identity is None:
            raise NotKnownError(
                "no identity of this node's access file has the certificate "
                f"{quoted(certified.client)}"
            )
        return identity

    def _certified(self, certificate: bytes) -> CertifiedAs:
        certified = self._certificates.get(certificate)
        if certified is None:
            if len(self._certificates) >= REMEMBERED:
                self._certificates.clear()
            certified = self._certificates[certificate] = self._read(certificate)
        return certified

    def _read(self, certificate: bytes) -> CertifiedAs:
        read = names_in_pem if certificate.startswith(b"-----") else names_in_der
        try:
            names: CertificateNames = read(certificate)
        except ValueError:
            return CertifiedAs(fault="the certificate cannot be read")
        return replace(certified_as(names, self._cluster_id), until=names.until)

    # ---- what it uses

    def enter(self, peer: str, *, stream: bool) -> Caller:
        """Count a call of this connection; who makes it is not known yet."""
        usage = self._connections.get(peer)
        if usage is None:
            usage = self._new_connection(peer)
        usage.calls += 1
        usage.streams += stream
        caller = Caller(peer, usages=(usage,), keeper=self, stream=stream, began=self.monotonic())
        self.callers.add(caller)
        return caller

    @property
    def connections(self) -> int:
        """Those that have a call in progress."""
        return sum(1 for usage in self._connections.values() if usage.calls)

    def in_use(self, peer: str) -> bool:
        """Whether a connection has a call or a stream in progress."""
        usage = self._connections.get(peer)
        return (usage is not None and usage.calls > 0) or peer in self.streaming

    def long_polls_of(self, peer: str) -> int:
        """How many pulls of a connection wait for a message."""
        usage = self._connections.get(peer)
        return 0 if usage is None else usage.long_polls

    def has_met(self, peer: str) -> bool:
        """Whether a call of this connection was let in a short while ago."""
        return peer in self._met

    def _meet(self, peer: str) -> None:
        met = self._met
        if peer not in met:
            met[peer] = None
            if len(met) > MET:
                met.popitem(last=False)

    def known(self, caller: Caller, who: Who, call: str, *, stream: bool) -> None:
        """The caller has proved to be `who`: its identity counts the call, of this name, too."""
        caller.who, caller.call, caller.holder = who, call, who.identity.name
        self._meet(caller.peer)
        identity = who.identity
        if identity.limits is NO_LIMITS:
            return
        usage = self._identities.get(identity.name)
        if usage is None:
            usage = self._identities[identity.name] = Usage(
                f"identity {identity.name!r}", "limits.", identity.limits, self.monotonic()
            )
        usage.calls += 1
        usage.streams += stream
        caller.usages = (*caller.usages, usage)

    def check(self, caller: Caller, *, stream: bool) -> None:
        """Raises OverLimitError for a call, counted before, that is one too many."""
        now = self.monotonic()
        for usage in caller.usages:
            usage.check(stream=stream, now=now)

    def leave(self, caller: Caller, *, stream: bool) -> None:
        """The call is over."""
        self.callers.discard(caller)
        for usage in caller.usages:
            usage.calls -= 1
            usage.streams -= stream
        usage = caller.usages[0]
        if usage.idle and self._connections.get(caller.peer) is usage:
            del self._connections[caller.peer]

    def _new_connection(self, peer: str) -> Usage:
        """Those with a rate are kept for a while after their last call, so that a new call does not
        begin with a full second; the oldest go first."""
        if len(self._connections) >= REMEMBERED:
            rows = list(self._connections.items())[: REMEMBERED // 4]
            for old in [name for name, each in rows if not (each.calls or each.bytes)]:
                del self._connections[old]
        if not self.active:
            self._meet(peer)
        usage = self._connections[peer] = Usage(
            "this connection", "limits.connection_", self._connection_limits, self.monotonic()
        )
        return usage

    def moved_back(self, caller: Caller, group: str, queues: str) -> None:
        """See Keeper. From any thread."""
        arguments = f"group: {group!r} moved back: {queues}"
        self.audit.called("CommitOffsets", caller.name, caller.peer, arguments, always=False)

    def refused(self, caller: Caller, problem: Exception) -> None:
        """A line of the audit log, unless this host has had too many."""
        if isinstance(problem, DeniedError | NotKnownError):
            self.audit.refused(caller.call, caller.name, caller.peer, str(problem))


def open_to_all(monotonic: Callable[[], float]) -> Doorkeeper:
    """The doorkeeper of a node without an access file and required certificates."""
    return Doorkeeper("", monotonic=monotonic)
