"""Who may ask the HTTP port: every identity may read everything, and no one else anything.

    security.open_health, and a health path  ──▶ answered
    a token or a certificate that is known   ──▶ answered
    anything else, also a path that is none  ──▶ 401, and a line in the audit log

TLS asks each client for a certificate and takes connections without one: a probe that can show
nothing is decided here, by its path. One that shows a certificate of a foreign authority has been
refused by TLS already.
"""

from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ..access.access_refusals import NotKnownError
from ..access.doorkeeper import Doorkeeper
from .health import PATHS


def gate(keeper: Doorkeeper) -> Middleware:
    """The middleware that lets in who `keeper` knows."""

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = "(no such path)" if resource is None else resource.canonical
        if keeper.open_health and path in PATHS:
            return await handler(request)
        try:
            # repeated headers are joined, which never equals a token: see authorization_of
            authorization = ", ".join(request.headers.getall("Authorization", ()))
            keeper.identify(authorization, _certificate(request))
        except NotKnownError as error:
            keeper.audit.refused(f"HTTP {path}", "", _peer(request), str(error))
            return web.json_response(
                {"error": str(error)}, status=401, headers={"WWW-Authenticate": "Bearer"}
            )
        return await handler(request)

    return admit


def _certificate(request: web.Request) -> bytes | None:
    tls: Any = request.get_extra_info("ssl_object")
    found: bytes | None = None if tls is None else tls.getpeercert(binary_form=True)
    return found


def _peer(request: web.Request) -> str:
    name: Any = request.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if name else "-"
