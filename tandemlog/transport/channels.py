"""The one place that opens gRPC channels of clients, of slaves and to the coordinator."""

from collections.abc import Sequence

import grpc
from grpc import aio

from .files import SecurityFileError, SecurityFiles

Options = Sequence[tuple[str, int | str]]


def open_channel(endpoint: str, files: SecurityFiles, options: Options) -> aio.Channel:
    """A channel to host:port `endpoint` for asyncio. Raises SecurityFileError."""
    credentials, settings = _prepared(endpoint, files, options)
    if credentials is None:
        return aio.insecure_channel(endpoint, options=settings)
    return aio.secure_channel(endpoint, credentials, options=settings)


def open_sync_channel(endpoint: str, files: SecurityFiles, options: Options) -> grpc.Channel:
    """The same without asyncio."""
    credentials, settings = _prepared(endpoint, files, options)
    if credentials is None:
        return grpc.insecure_channel(endpoint, options=settings)
    return grpc.secure_channel(endpoint, credentials, options=settings)


def _prepared(
    endpoint: str, files: SecurityFiles, options: Options
) -> tuple[grpc.ChannelCredentials | None, list[tuple[str, int | str]]]:
    settings = list(options)
    fault = files.security.fault_with(endpoint)
    if fault:
        raise SecurityFileError(fault)
    if files.security.server_name:
        settings.append(("grpc.ssl_target_name_override", files.security.server_name))
    return files.current().credentials, settings
