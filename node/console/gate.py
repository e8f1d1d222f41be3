"""Who may ask the console for what. Every request passes here, also those for paths it has not.

    a way in (log in, its page and style)     ──▶ answered
    no session                                ──▶ 401, the same for every path; a page: log in
    a host name that is not this machine's    ──▶ 421, where callers are not asked who they are
    another web page                          ──▶ 403
    POST                                      ──▶ JSON, from this origin, with the CSRF token
    a change                                  ──▶ [console] writes, and may administer
    a message that is sent                    ──▶ [console] writes; the node looks at the right
    too many of one caller                    ──▶ 429, as long as its answers are not taken

A change gets its line in the audit log whatever becomes of it. Belongs to the loop.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

from aiohttp import web

from tandemlog.errors import InvalidArgumentError

from ..access.access_refusals import NotKnownError
from ..access.audit_log import OK
from ..access.caller_addresses import host_of
from ..access.doorkeeper import Doorkeeper
from ..access.identities import Identity
from ..http.requests import peer_of
from ..settings.console_section import ConsoleSection
from .answers import Assets, fault, fault_of, is_expected, json_answer
from .cluster_clients import ClientPool
from .logins import LOG_IN, Logins
from .origins import OwnNames, fault_of_change, fault_of_question, name_of
from .room import (
    ANSWERS,
    ANSWERS_OF_ALL,
    WAITS,
    WAITS_OF_ALL,
    FullError,
    Room,
    network_of,
)
from .sessions import Session, same_csrf
from .visit import Needs, Place, Route, Visit, body_of

PREFIX = "/console"
CHANGES = frozenset({Needs.CHANGE, Needs.SEND})
TAKE_S = 60.0
"""In this time an answer must have been taken: it is memory."""
CUT_OFF = "not known: the request ended before its answer"
MOST_FIELDS = 12
MOST_LETTERS = 80

logger = logging.getLogger(__name__)


class Gate:
    """See the module."""

    def __init__(
        self,
        section: ConsoleSection,
        keeper: Doorkeeper,
        pool: ClientPool,
        assets: Assets,
        logins: Logins,
        names: OwnNames,
    ) -> None:
        self._section = section
        self._audit = keeper.audit
        self._asks_who = keeper.active
        self._pool = pool
        self._assets = assets
        self._logins = logins
        self._names = names
        self._rooms = {
            Place.ANSWER: Room(ANSWERS, ANSWERS_OF_ALL),
            Place.WAIT: Room(WAITS, WAITS_OF_ALL),
        }
        self._table: Mapping[tuple[str, str], Route] = {}

    def admit(self, routes: Iterable[Route]) -> None:
        """Let requests for these through, by what each needs."""
        self._table = {(each.method, PREFIX + each.path): each for each in routes}

    @web.middleware
    async def let_in(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if not request.path.startswith(PREFIX + "/"):
            return cast("web.StreamResponse", await handler(request))
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        method = "GET" if request.method == "HEAD" else request.method
        route = self._table.get((method, path))
        host = network_of(host_of(peer_of(request)))
        if route is not None and route.needs is Needs.NOTHING:
            if method == "POST" and (text := _change_fault(request)):
                return fault(403, text, "Refused")
            return await self._in_room(route, request, self._logins.anyone, None, host)
        try:
            session, who = self._logins.caller(request)
        except NotKnownError as error:
            return self._turned_away(request, route, str(error))
        identity = None if who is None else who.identity
        if not self._asks_who and not self._names.cover(request.host):
            text = (
                f"{name_of(request.host)[:80]!r} is not a name of this node: if browsers reach it "
                "by that name, add it to [console] hosts"
            )
            return fault(421, text, "ForeignHost")
        if route is None:
            return fault(404, "the console has no such page", "NotFound")
        refusal = self._refusal(request, route, session, identity)
        if refusal is not None:
            name = session.name if identity is None else identity.name
            self._audit.refused(f"console {method} {path}", name, peer_of(request), refusal[1])
            return fault(*refusal, "Refused")
        holder = host if identity is None else f"identity {identity.name}"
        return await self._in_room(route, request, session, identity, holder)

    async def _in_room(
        self,
        route: Route,
        request: web.Request,
        session: Session,
        identity: Identity | None,
        holder: str,
    ) -> web.StreamResponse:
        """The answer, for which there is a place until the caller has taken it."""
        room = self._rooms.get(route.place)
        if room is None:
            return await self._answer(route, request, session, identity)
        try:
            with room.place(holder):
                answer = await self._answer(route, request, session, identity)
                return await _taken(answer, request)
        except FullError as error:
            return fault(429, str(error), "Busy")

    async def _answer(
        self, route: Route, request: web.Request, session: Session, identity: Identity | None
    ) -> web.StreamResponse:
        outcome = CUT_OFF
        visit = Visit(request, session, identity, self._pool.of(session), {})
        try:
            if request.method == "POST":
                visit.body = body_of(await _body(request, route.most_body_bytes))
            answer = await route.answer(visit)
            outcome = OK
        except Exception as error:
            secret = route.not_audited or not str(error)
            outcome = type(error).__name__ if secret else str(error)
            self._log_unexpected(request, error)
            return fault_of(error)
        finally:
            if route.needs in CHANGES:
                self._log(route, visit, outcome)
        if isinstance(answer, web.StreamResponse):
            return answer
        return await json_answer(answer, request.headers.get("Accept-Encoding", ""))

    def _log_unexpected(self, request: web.Request, error: Exception) -> None:
        """A traceback, unless this host has caused too many lines."""
        if is_expected(error):
            return
        left_out = self._audit.left_out(peer_of(request))
        if left_out is not None:
            logger.error("the console could not answer%s", left_out, exc_info=error)

    def _log(self, route: Route, visit: Visit, outcome: str) -> None:
        """The calls to the nodes have lines of their own, which know the node and not the
        browser's address. What is changed comes first, since a long line is cut."""
        body = visit.body
        names = sorted(body, key=lambda each: (each != "confirm", each))[:MOST_FIELDS]
        given = [f"{name[:MOST_LETTERS]}: {_told(route, name, body[name])}" for name in names]
        if len(body) > MOST_FIELDS:
            given.append(f"and {len(body) - MOST_FIELDS} more")
        self._audit.called(
            f"console {route.path}",
            visit.name,
            peer_of(visit.request),
            f"{visit.request.path[:MOST_LETTERS]} {', '.join(given)}",
            outcome,
            always=self._asks_who and visit.admin,
        )

    def _turned_away(self, request: web.Request, route: Route | None, reason: str) -> web.Response:
        """The same for each path, whether it exists or not; a person gets the page to log in."""
        wants_page = request.method == "GET" and "text/html" in request.headers.get("Accept", "")
        if not (wants_page and route is not None and route.page):
            self._audit.refused("HTTP /console", "", peer_of(request), reason)
        if wants_page:
            return self._assets.answer("login.html", request, 401)
        return fault(401, LOG_IN, "NotKnown", **{"WWW-Authenticate": "Bearer"})

    def _refusal(
        self, request: web.Request, route: Route, session: Session, identity: Identity | None
    ) -> tuple[int, str] | None:
        """Status and text for a request that its caller may not make."""
        if route.method == "POST":
            if text := _change_fault(request):
                return 403, text
            if not same_csrf(session, request.headers.get("X-CSRF-Token", "")):
                return 403, "the CSRF token is not this session's: load the page again"
        elif not route.page and (text := fault_of_question(request.headers)):
            return 403, text
        if route.needs in CHANGES:
            if not self._section.writes:
                return 403, "this console only shows: set [console] writes = true to change"
            if route.needs is Needs.CHANGE and identity is not None and not identity.admin:
                return 403, f"identity {identity.name!r} lacks the right to administer"
        return None


def _change_fault(request: web.Request) -> str:
    return fault_of_change(request.host, request.content_type, request.headers)


async def _body(request: web.Request, most: int) -> bytes:
    """Raises InvalidArgumentError for one of more than `most` bytes, of which no more are read."""
    data = bytearray()
    if (request.content_length or 0) <= most:
        async for chunk in request.content.iter_any():
            data += chunk
            if len(data) > most:
                break
        else:
            return bytes(data)
    raise InvalidArgumentError(f"the body has more than {most} bytes", field="body")


async def _taken(answer: web.StreamResponse, request: web.Request) -> web.StreamResponse:
    """The answer, once the connection has taken it but for a small rest."""
    try:
        async with asyncio.timeout(TAKE_S):
            await answer.prepare(request)
            await answer.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return answer


def _told(route: Route, name: str, value: object) -> str:
    """Of a field of the body, for the audit log."""
    if name not in route.not_audited:
        text = repr(value)
        return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"
    return f"of {len(value)} characters" if isinstance(value, str) else "not shown"
