"""Health for load balancers and orchestrators, and metrics, on one HTTP port.

    /health             200 while the store takes and gives what it should
    /liveness           200 while the process is worth keeping: a restart would not help otherwise
    /readiness?lag=     200 where the node serves; a slave: within `lag` of the master
    /master             200 on a master that could acknowledge a put now
    /slave?lag=         200 on a slave within `lag`
    /in-sync            200 on a member of the in-sync set
    /metrics            Prometheus

`lag` is bytes, with a unit if wanted: 10MB, 64KiB. Anything but 200 is 503 with the reason, 400 for
a bad query. Answers are small JSON objects; nothing here asks another node or a disk.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from tandemlog.v1 import common_pb2

from .metrics import CONTENT_TYPE

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


@dataclass(frozen=True, slots=True)
class Health:
    """What this node is and how it is, at one moment. The faults are empty where there is none."""

    status: common_pb2.NodeStatus
    store_fault: str
    put_fault: str  # why a put would not be acknowledged now
    read_fault: str  # why reads are not what they should be: starting, never connected, stopping


class HealthSource(Protocol):
    def health(self) -> Health: ...


class BadQueryError(ValueError):
    """A query parameter that cannot be read."""


def parse_bytes(text: str) -> int:
    """`10MB`, `64KiB`, `1000` in bytes. Raises BadQueryError."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise BadQueryError(f"not a size: {text!r}; write bytes, or a number with KB, MB, GiB, …")
    return int(float(match[1]) * unit)


def faults(path: str, health: Health, query: Mapping[str, str]) -> str:
    """Why `path` is not 200; empty where it is."""
    status = health.status
    is_master = status.role == common_pb2.MASTER
    if path == "/liveness":
        return ""
    if path == "/health":
        return health.store_fault
    if path == "/master":
        return health.put_fault if is_master else "this node is a slave"
    if path == "/in-sync":
        return "" if status.in_sync else status.detail or "not in the in-sync set"
    if path == "/slave" and is_master:
        return "this node is the master"
    return health.store_fault or health.read_fault or _lag_fault(status, query.get("lag"))


def _lag_fault(status: common_pb2.NodeStatus, limit: str | None) -> str:
    if limit is None or status.role == common_pb2.MASTER:
        return ""
    most = parse_bytes(limit)
    if status.lag_bytes <= most:
        return ""
    return f"{status.lag_bytes} bytes behind the master, more than {most}"


class HttpServer:
    """See the module. `metrics` gives the text of /metrics."""

    def __init__(self, source: HealthSource, metrics: Callable[[], bytes]) -> None:
        self._source = source
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the answer is the port. Raises OSError where it is taken."""
        application = web.Application()
        for path in ("/health", "/liveness", "/readiness", "/master", "/slave", "/in-sync"):
            application.router.add_get(path, self._answer_for(path))
            application.router.add_options(path, self._answer_for(path))
        application.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _answer_for(self, path: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            health = self._source.health()
            try:
                reason = faults(path, health, request.query)
            except BadQueryError as problem:
                return web.json_response({"error": str(problem)}, status=400)
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

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})
