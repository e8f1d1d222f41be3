"""Who asks: a session by its cookie, a client certificate, or anyone where callers are not asked.

The proof behind a session is looked at in each request: a token that was revoked, or a certificate
that has expired, ends it. Belongs to the loop.
"""

import time
from collections.abc import Callable, Mapping

from aiohttp import web

from tandemlog.transport.security import token_fault

from ..access.access_refusals import NotKnownError
from ..access.caller import Who
from ..access.caller_addresses import host_of
from ..access.doorkeeper import UNKNOWN_TOKEN, Doorkeeper
from ..access.identities import digest_of
from ..http.requests import certificate_of, peer_of
from .answers import NOT_KEPT, PROTECTION, fault
from .room import network_of
from .sessions import Session, Sessions, WrongTokens
from .visit import Visit

ANYONE = "anyone"
LOG_IN = "log in first: the node has to know who calls"


class Logins:
    """See the module. `keeper` is None where callers are not asked who they are; `ended` is called
    with each session that is gone; cookies hold below `prefix`."""

    def __init__(
        self,
        keeper: Doorkeeper | None,
        idle_s: float,
        ended: Callable[[Session], None],
        *,
        node_id: str,
        prefix: str,
        tls: bool,
    ) -> None:
        self._keeper = keeper
        self._tell_ended = ended
        # Cookies know no port, and nodes of one host are different: each has its own. The prefix
        # __Host- keeps other hosts of the domain from setting it.
        self._cookie = f"__Host-tandemlog-{node_id}" if tls else f"tandemlog-{node_id}"
        self._path = "/" if tls else prefix
        self._tls = tls
        self.anyone = Session(ANYONE)
        self.sessions = Sessions(idle_s, self._ended)
        self._wrong = WrongTokens(time.monotonic())

    def caller(self, request: web.Request) -> tuple[Session, Who | None]:
        """The session and, where callers are asked, who it is now. Raises NotKnownError."""
        keeper = self._keeper
        if keeper is None:
            return self.anyone, None
        now = time.monotonic()
        key = request.cookies.get(self._cookie, "")
        session = self.sessions.find(key, now) if key else None
        if session is None:
            return self._by_certificate(keeper, request, now)
        try:
            return session, keeper.identify(f"Bearer {session.token}", None)
        except NotKnownError:
            self.sessions.close(session)
            raise

    def _by_certificate(
        self, keeper: Doorkeeper, request: web.Request, now: float
    ) -> tuple[Session, Who]:
        certificate = certificate_of(request)
        if certificate is None:
            raise NotKnownError(LOG_IN)
        who = keeper.identify("", certificate)
        digest = b"certificate" + digest_of(certificate.hex())
        session = self.sessions.find_digest(digest, now)
        if session is None:
            session = Session(who.identity.name, keeper.give_pass(certificate), certificate)
            self.sessions.keep(digest, session, now)
            self._audit(keeper, request, "console log in by certificate", who)
        return session, who

    async def log_in(self, visit: Visit) -> web.StreamResponse:
        """A session for the token in the body; its key is in the cookie."""
        request, keeper, now = visit.request, self._keeper, time.monotonic()
        if keeper is None:
            return fault(400, "this node does not ask who calls: open the console", "NoLogin")
        host = network_of(host_of(peer_of(request)))
        if wait_s := self._wrong.wait_s(host, now):
            seconds = str(int(wait_s) + 1)
            text = f"too many wrong tokens: try again in {seconds} s"
            return fault(429, text, "Busy", **{"Retry-After": seconds})
        token = visit.given("token").strip()
        try:
            if token_fault(token):
                raise NotKnownError(UNKNOWN_TOKEN)
            who = keeper.identify(f"Bearer {token}", None)
        except NotKnownError as error:
            self._wrong.add(host, now)
            keeper.audit.refused("console log in", "", peer_of(request), str(error))
            return fault(401, str(error), "NotKnown")
        self._wrong.right(host)
        name = who.identity.name
        key = self.sessions.open(Session(name, token), now)
        self._audit(keeper, request, "console log in", who)
        answer = web.json_response({"name": name}, headers=_HEADERS)
        # a proxy may have ended TLS before this node
        secure = self._tls or request.headers.get("Origin", "").startswith("https:")
        answer.set_cookie(
            self._cookie, key, path=self._path, httponly=True, secure=secure, samesite="Strict"
        )
        return answer

    async def log_out(self, visit: Visit) -> web.StreamResponse:
        """The session is over, and its key worth nothing."""
        self.sessions.close(visit.session)
        if self._keeper is not None:
            self._keeper.audit.called(
                "console log out", visit.name, peer_of(visit.request), "", always=visit.admin
            )
        answer = web.json_response({}, headers=_HEADERS)
        answer.del_cookie(self._cookie, path=self._path)
        return answer

    def _audit(self, keeper: Doorkeeper, request: web.Request, call: str, who: Who) -> None:
        name, admin = who.identity.name, who.identity.admin
        keeper.audit.called(call, name, peer_of(request), "", always=admin)

    def _ended(self, session: Session) -> None:
        if session.certificate is not None and self._keeper is not None:
            self._keeper.take_pass(session.token)
        self._tell_ended(session)


_HEADERS: Mapping[str, str] = {**PROTECTION, **NOT_KEPT}
