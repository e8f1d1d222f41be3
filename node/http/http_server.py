"""Health for load balancers and orchestrators, and metrics, on one HTTP port.

health.py decides the response for each path: 200, or 503 with the reason, or 400 for a bad query,
as a small JSON object; /metrics is Prometheus' text. /cluster and /history tell what the node knows
of its cluster. No handler asks another node, a disk or the coordinator.

Where callers have to prove who they are, any identity may read everything:

    security.open_health, and a health path      ──▶ answered
    a known token or certificate                 ──▶ answered
    anything else, also a path that is not here  ──▶ 401, and a line in the audit log

TLS asks each client for a certificate and takes connections without one: a probe that can show
nothing is decided here, by its path. TLS has already refused a certificate of a foreign authority.

A node imports this module after it has started to serve: its two libraries are a third of all
imports, and after a crash the first put would wait for them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from tandemlog.v1 import common_pb2

from ..access.access_refusals import NotKnownError
from ..access.doorkeeper import Doorkeeper
from ..process.machine_bounds import ConnectionBounds
from ..security.node_security import NodeSecurity
from ..services.election_service import ElectionService
from .bounded_site import BoundedSite
from .health import PATHS, BadQueryError, faults
from .metrics import CONTENT_TYPE, Metrics
from .node_numbers import Observed
from .requests import certificate_of, peer_of


class Part(Protocol):
    """What adds paths of its own below `prefix`, and decides itself who may ask for them."""

    prefix: str

    def add_to(self, application: web.Application) -> None: ...


class HttpServer:
    """See the module. `elections` is None where roles are configured."""

    def __init__(
        self,
        node: Observed,
        metrics: Metrics,
        elections: ElectionService | None = None,
        security: NodeSecurity | None = None,
        bounds: ConnectionBounds = ConnectionBounds(),  # noqa: B008
        part: Part | None = None,
    ) -> None:
        self._node = node
        self._part = part
        self._elections = elections
        self._security = security
        self._bounds = bounds
        self._metrics = metrics
        self._runner: web.AppRunner | None = None
        self._scraping: asyncio.Task[bytes] | None = None

    def application(self) -> web.Application:
        """Every path that is served, behind the gate."""
        security = self._security
        application = web.Application()
        if self._part is not None:
            self._part.add_to(application)
        if security is not None and security.doorkeeper.active:
            elsewhere = "" if self._part is None else self._part.prefix
            application.middlewares.append(gate(security.doorkeeper, elsewhere))
        for path in PATHS:
            application.router.add_get(path, self._answer_for(path))
            application.router.add_options(path, self._answer_for(path))
        application.router.add_get("/metrics", self._scrape)
        application.router.add_get("/cluster", self._tell_cluster)
        application.router.add_get("/history", self._tell_history)
        return application

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError if it is taken."""
        logging.getLogger("aiohttp.server").addFilter(_is_ours)
        self._runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        security = self._security
        tls = None if security is None or security.tls is None else security.tls.http_context
        await BoundedSite(self._runner, host, port, tls=tls, bounds=self._bounds).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _answer_for(self, path: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            health = self._node.health()
            try:
                reason = faults(path, health, request.query)
            except BadQueryError as error:
                return web.json_response({"error": str(error)}, status=400)
            status = health.status
            body = {
                "node": status.node_id,
                "role": common_pb2.Role.Name(status.role).lower(),
                "state": status.state,
                "epoch": status.epoch,
                "in_sync": status.in_sync,
                "lag_bytes": status.lag_bytes,
                "lag_seconds": round(status.lag_seconds, 3),
                "reason": reason,
            }
            return web.json_response(body, status=503 if reason else 200)

        return answer

    async def _tell_cluster(self, _: web.Request) -> web.Response:
        numbers, elections = self._node.numbers(), self._elections
        body = {
            "answered_by": numbers.own.node_id,
            "nodes": [_node(each) for each in numbers.members],
            "elections": None if elections is None else elections.cluster(),
        }
        return web.json_response(body)

    async def _tell_history(self, _: web.Request) -> web.Response:
        if self._elections is None:
            text = "the roles of this cluster are configured: it has no elections"
            return web.json_response({"error": text}, status=404)
        own = self._node.health().status
        return web.json_response({"answered_by": own.node_id, **self._elections.epochs()})

    async def _scrape(self, _: web.Request) -> web.Response:
        # a scrape is work for a thread; those that come meanwhile get the same text
        if self._scraping is None or self._scraping.done():
            work = asyncio.to_thread(self._metrics.text, self._node.numbers())
            self._scraping = asyncio.create_task(work, name="scrape")
        text = await asyncio.shield(self._scraping)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def gate(keeper: Doorkeeper, elsewhere: str = "") -> Middleware:
    """The middleware that lets in callers whom `keeper` knows. Paths below `elsewhere` have a gate
    of their own."""

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = "(no such path)" if resource is None else resource.canonical
        below = elsewhere and request.path.startswith(elsewhere + "/")
        if below or (keeper.open_health and path in PATHS):
            return await handler(request)
        try:
            # repeated headers are joined, which never equals a token: see authorization_of
            authorization = ", ".join(request.headers.getall("Authorization", ()))
            keeper.identify(authorization, certificate_of(request))
        except NotKnownError as error:
            keeper.audit.refused(f"HTTP {path}", "", peer_of(request), str(error))
            return web.json_response(
                {"error": str(error)}, status=401, headers={"WWW-Authenticate": "Bearer"}
            )
        return await handler(request)

    return admit


def _node(status: common_pb2.NodeStatus) -> dict[str, object]:
    return {
        "node": status.node_id,
        "role": common_pb2.Role.Name(status.role).lower(),
        "endpoint": status.endpoint,
        "state": status.state,
        "epoch": status.epoch,
        "in_sync": status.in_sync,
        "wrote_offset": status.wrote_offset,
        "confirm_offset": status.confirm_offset,
        "lag_bytes": status.lag_bytes,
        "lag_seconds": round(status.lag_seconds, 3),
        "detail": status.detail,
        "alarm": status.alarm,
    }


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a line of the log is about this node. A malformed request gets a 400; a traceback
    for each would let a client fill the disk."""
    problem = record.exc_info[1] if record.exc_info else None
    return not isinstance(problem, HttpProcessingError) or problem.code >= 500


async def serve_http(
    node: Observed,
    cluster_id: str,
    node_id: str,
    endpoint: tuple[str, int],
    elections: ElectionService | None = None,
    security: NodeSecurity | None = None,
    bounds: ConnectionBounds = ConnectionBounds(),  # noqa: B008
    part: Part | None = None,
) -> HttpServer:
    """Listen on (host, port) for `node`."""
    server = HttpServer(node, Metrics(cluster_id, node_id), elections, security, bounds, part)
    await server.start(*endpoint)
    return server
