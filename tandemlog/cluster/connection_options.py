"""The settings of a connection to a cluster."""

from dataclasses import dataclass, field, replace
from typing import Final

from ..errors import InvalidArgumentError
from ..telemetry.outages import OnAway, OnBack
from ..transport.security import Security

_MODES: Final = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Times in milliseconds: of one call, of all attempts of a call, of one search for the master,
    and the age at which the client asks for the topology again. `connect_timeout_ms` is how long
    a client looks for the cluster if no node has ever answered it: then an endpoint is wrong
    rather than a node away. `security`: see Security.

    `data_connections`: whether puts and pulls go by plain TCP connections beside gRPC, which cost
    less (docs/decisions/0043-data-connections.md). auto: puts, and all pulls behind the
    first one; always: that one waits for the connection too; never. Without one that works, and
    with TLS, all goes by gRPC. `http_proxy`: calls go through the proxy that `http_proxy` of the
    environment names, `no_proxy` excepted, and none by data connections; else that is ignored.

    `on_cluster_away` is called with the reason and the time (seconds since 1970) when no node
    says any more that it is the master, `on_cluster_back` with the length of the outage in ms
    when one does again: each once for an outage, in the client's thread. Do not call a client in
    them."""

    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 30_000
    connect_timeout_ms: int = 5_000
    discovery_timeout_ms: int = 2_000
    topology_max_age_ms: int = 10_000
    data_connections: str = "auto"
    http_proxy: bool = False
    on_cluster_away: OnAway | None = None
    on_cluster_back: OnBack | None = None
    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        if self.data_connections not in _MODES:
            raise InvalidArgumentError(
                f"data_connections {self.data_connections!r}: it must be one of "
                f"{', '.join(_MODES)}",
                field="data_connections",
            )
        for name in (
            "request_timeout_ms",
            "retry_timeout_ms",
            "connect_timeout_ms",
            "discovery_timeout_ms",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive: {getattr(self, name)}")


def secured(options: ConnectionOptions | None, security: Security | None) -> ConnectionOptions:
    """`options` with `security`, where that is given."""
    options = options or ConnectionOptions()
    return options if security is None else replace(options, security=security)
