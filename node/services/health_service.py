"""The complete standard health service: the library registers List but does not implement it, so
each call of it would end with a traceback in the log."""
# The methods have the names of health.proto.
# ruff: noqa: N802

from typing import Any

from grpc_health.v1 import health, health_pb2


class HealthService(health.aio.HealthServicer):  # type: ignore[misc]
    """The library's, and List: the state of every service that was ever set."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()

    async def set(self, service: str, status: Any) -> None:
        self._names.add(service)
        await super().set(service, status)

    async def List(self, request: Any, context: Any) -> Any:
        answer = health_pb2.HealthListResponse()
        for name in sorted(self._names):
            asked = health_pb2.HealthCheckRequest(service=name)
            answer.statuses[name].CopyFrom(await self.Check(asked, context))
        return answer
