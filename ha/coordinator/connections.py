"""One gRPC channel an endpoint, made when it is first needed and kept while it is connected.

A channel that has to connect again is replaced if the files of certificates have changed. Where TLS
is the reason that there is no connection, a second look says why (transport/tls_faults.py); it runs
beside the attempts and takes none of their time.

A request is sent only over a channel that is ready. So a refused connection is known to have
carried nothing, and what fails afterwards is known to be in doubt.
"""

import asyncio
import logging

import grpc
from grpc import aio

from tandemlog.transport.channels import open_channel
from tandemlog.transport.security_files import SecurityFileError, SecurityFiles
from tandemlog.transport.tls_faults import explain

from .options import CoordinatorOptions
from .verdicts import AttemptError, Verdict

logger = logging.getLogger(__name__)

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
        self._files = SecurityFiles(options.security)
        self._channels: dict[str, aio.Channel] = {}
        self._numbers: dict[str, int] = {}
        self._replaced: dict[str, aio.Channel] = {}
        self._explaining: dict[str, asyncio.Task[None]] = {}
        self._faults: dict[str, str] = {}
        self._closed = False

    async def ready(self, endpoint: str, seconds: float) -> tuple[aio.Channel, bool]:
        """The channel, connected, within `seconds`; and whether the connection is a new one.

        Raises AttemptError."""
        if self._closed:
            raise AttemptError(Verdict.ELSEWHERE, endpoint, "this client is closed")
        try:
            channel = await self._channel(endpoint)
        except SecurityFileError as error:
            raise AttemptError(Verdict.ELSEWHERE, endpoint, str(error)) from error
        try:
            async with asyncio.timeout(seconds):
                state = channel.get_state(try_to_connect=True)
                new = state is not Ready
                while state is not Ready:
                    if state is Failed and len(self._options.endpoints) > 1:
                        reason = f"no connection{self._why(endpoint)}"
                        raise AttemptError(Verdict.ELSEWHERE, endpoint, reason)
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            reason = f"not connected within {seconds:.1f} s{self._why(endpoint)}"
            raise AttemptError(Verdict.ELSEWHERE, endpoint, reason) from None
        except aio.UsageError as error:
            raise AttemptError(Verdict.ELSEWHERE, endpoint, "this client is closed") from error
        self._faults.pop(endpoint, None)
        return channel, new

    async def close(self) -> None:
        """End every channel, and every call on it."""
        self._closed = True
        for task in self._explaining.values():
            task.cancel()
        channels = [*self._channels.values(), *self._replaced.values()]
        self._channels.clear()
        self._replaced.clear()
        for each in channels:
            await each.close()

    async def _channel(self, endpoint: str) -> aio.Channel:
        """The channel of the endpoint; a new one if it would have to connect with certificates that
        were replaced."""
        channel = self._channels.get(endpoint)
        if channel is not None and channel.get_state() is Ready:
            return channel
        number = self._files.current().number
        if channel is not None and self._numbers[endpoint] == number:
            return channel
        if channel is not None:
            # others may wait for it: it is closed when the next one is replaced
            older, self._replaced[endpoint] = self._replaced.get(endpoint), channel
            if older is not None:
                await older.close()
        opened = self._channels[endpoint] = self._open(endpoint)
        self._numbers[endpoint] = number
        return opened

    def _why(self, endpoint: str) -> str:
        """What is known to be wrong with certificates there; starts to find it out for the next
        time."""
        if not self._options.security.tls:
            return ""
        task = self._explaining.get(endpoint)
        if task is None or task.done():
            self._explaining[endpoint] = asyncio.create_task(self._explain(endpoint))
        fault = self._faults.get(endpoint, "")
        return f": {fault}" if fault else ""

    async def _explain(self, endpoint: str) -> None:
        fault = await explain(endpoint, self._options.security)
        text = "" if fault is None else fault.text
        if text and text != self._faults.get(endpoint):
            logger.error("coordinator %s: %s", endpoint, text)
        self._faults[endpoint] = text

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
        return open_channel(endpoint, self._files, settings)
