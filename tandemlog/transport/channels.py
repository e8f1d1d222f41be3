"""The one place that opens gRPC channels of clients, of slaves and to the coordinator.

gRPC takes `http_proxy` of the environment for every channel, also for one to this machine. That
variable is for the web: a proxy that does not know the nodes answers for them, and a cluster that
worked "refuses connections". So it is ignored, unless the options have THROUGH_PROXY.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from . import own_grpc
from .security_files import SecurityFileError, SecurityFiles

if TYPE_CHECKING:
    import grpc
    from grpc import aio

Options = Sequence[tuple[str, int | str]]

_PROXY: Final = "grpc.enable_http_proxy"
THROUGH_PROXY: Final = (_PROXY, 1)
"""An option: `http_proxy` and `no_proxy` of the environment count."""


def open_channel(endpoint: str, files: SecurityFiles, options: Options) -> "aio.Channel":
    """A channel to host:port `endpoint` for asyncio. Raises SecurityFileError and OwnGrpcError."""
    return _open(endpoint, *_prepared(endpoint, files, options))


def open_channel_with(
    endpoint: str, credentials: "grpc.ChannelCredentials | None", options: Options
) -> "aio.Channel":
    """The same with credentials that the caller has; None for a channel without TLS."""
    own_grpc.ready()
    return _open(endpoint, credentials, _with_proxy_rule(options))


def _open(
    endpoint: str,
    credentials: "grpc.ChannelCredentials | None",
    settings: list[tuple[str, int | str]],
) -> "aio.Channel":
    if credentials is None:
        channel = own_grpc.aio.insecure_channel(endpoint, options=settings)
    else:
        channel = own_grpc.aio.secure_channel(endpoint, credentials, options=settings)
    own_grpc.note_channel(channel)
    return channel


def open_sync_channel(endpoint: str, files: SecurityFiles, options: Options) -> "grpc.Channel":
    """The same without asyncio. Not in a fork of a process that has used gRPC."""
    credentials, settings = _prepared(endpoint, files, options)
    if credentials is None:
        return own_grpc.grpc.insecure_channel(endpoint, options=settings)
    return own_grpc.grpc.secure_channel(endpoint, credentials, options=settings)


def _prepared(
    endpoint: str, files: SecurityFiles, options: Options
) -> "tuple[grpc.ChannelCredentials | None, list[tuple[str, int | str]]]":
    own_grpc.ready()
    settings = _with_proxy_rule(options)
    fault = files.security.fault_with(endpoint)
    if fault:
        raise SecurityFileError(fault)
    if files.security.server_name:
        settings.append(("grpc.ssl_target_name_override", files.security.server_name))
    return files.current().credentials, settings


def _with_proxy_rule(options: Options) -> list[tuple[str, int | str]]:
    return [(_PROXY, 0), *options] if THROUGH_PROXY not in options else list(options)
