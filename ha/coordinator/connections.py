"""One gRPC channel an endpoint, made when it is first needed and kept.

A request is sent only over a channel that is ready. So a refused connection is known to have
carried nothing, and what fails afterwards is known to be in doubt.
"""

import asyncio

import grpc
from grpc import aio

from .options import CoordinatorOptions, Tls
from .verdicts import AttemptError, Verdict

_RECONNECT_MIN_MS = 100
_RECONNECT_MAX_MS = 1_000
_CONNECT_MS = 2_000
_PING_TIMEOUT_MS = 5_000
Ready = grpc.ChannelConnectivity.READY
Failed = grpc.ChannelConnectivity.TRANSIENT_FAILURE


class Connections:
    """See the module."""

    def __init__(self, options: CoordinatorOptions) -> None:
        self._options = options
        self._channels: dict[str, aio.Channel] = {}
        self._closed = False

    async def ready(self, endpoint: str, seconds: float) -> tuple[aio.Channel, bool]:
        """The channel, connected, within `seconds`; and whether the connection is a new one.

        Raises AttemptError."""
        if self._closed:
            raise AttemptError(Verdict.ELSEWHERE, endpoint, "this client is closed")
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = self._open(endpoint)
        try:
            async with asyncio.timeout(seconds):
                state = channel.get_state(try_to_connect=True)
                new = state is not Ready
                while state is not Ready:
                    if state is Failed and len(self._options.endpoints) > 1:
                        raise AttemptError(Verdict.ELSEWHERE, endpoint, "no connection")
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            reason = f"not connected within {seconds:.1f} s"
            raise AttemptError(Verdict.ELSEWHERE, endpoint, reason) from None
        except aio.UsageError as error:
            raise AttemptError(Verdict.ELSEWHERE, endpoint, "this client is closed") from error
        return channel, new

    async def close(self) -> None:
        """End every channel, and every call on it."""
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        for each in channels:
            await each.close()

    def _open(self, endpoint: str) -> aio.Channel:
        settings: list[tuple[str, int | str]] = [
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MIN_MS),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT_MAX_MS),
            ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
            ("grpc.keepalive_time_ms", round(self._options.keepalive_s * 1000)),
            ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
            ("grpc.max_receive_message_length", self._options.max_answer_bytes),
        ]
        tls = self._options.tls
        if tls is None:
            return aio.insecure_channel(endpoint, options=settings)
        if tls.server_name:
            settings.append(("grpc.ssl_target_name_override", tls.server_name))
        return aio.secure_channel(endpoint, _credentials(tls), options=settings)


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
