"""Calls of raw bytes over gRPC, from one event loop."""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
from grpc import aio

from fuzz.methods import LONG_POLLS, Method
from fuzz.oracle import Outcome
from fuzz.requests import Call

MAX_MESSAGE_BYTES = 64 << 20
MOST_ANSWERS = 8
UNARY_TIMEOUT_S = 60.0
# Streams that are open for as long as the caller likes, and calls that wait for news.
WAIT_S = 0.3


class Caller:
    """Some connections to each node, `endpoints` by its name."""

    def __init__(self, endpoints: Mapping[str, str], connections: int = 4) -> None:
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._channels = {
            node: [aio.insecure_channel(endpoint, options=options) for _ in range(connections)]
            for node, endpoint in endpoints.items()
        }
        self._turn = 0

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        for channels in self._channels.values():
            for channel in channels:
                await channel.close()

    async def call(self, call: Call, method: Method | None) -> Outcome:
        """Make the call to its end, or as far as it is of interest."""
        channels = self._channels[call.node]
        self._turn += 1
        channel = channels[self._turn % len(channels)]
        try:
            if method is not None and method.streaming:
                return await self._stream(channel, call)
            timeout = WAIT_S if call.path.endswith(LONG_POLLS) else UNARY_TIMEOUT_S
            ask: Any = channel.unary_unary(call.path)
            answer: bytes = await ask(call.messages[0], timeout=timeout)
            return Outcome(grpc.StatusCode.OK, answers=(answer,))
        except aio.AioRpcError as fault:
            return Outcome(fault.code(), fault.details() or "")

    async def _stream(self, channel: aio.Channel, call: Call) -> Outcome:
        stream: Any = channel.stream_stream(call.path)(timeout=WAIT_S)
        answers: list[bytes] = []
        try:
            for message in call.messages:
                await stream.write(message)
            if not call.path.endswith("/Replicate"):
                await stream.done_writing()
            while len(answers) < MOST_ANSWERS:
                answer = await stream.read()
                if not isinstance(answer, bytes):
                    break
                answers.append(answer)
            else:
                return Outcome(grpc.StatusCode.OK, answers=tuple(answers))
            return Outcome(await stream.code(), await stream.details() or "", tuple(answers))
        except (asyncio.InvalidStateError, aio.BaseError):
            # the node ended the call while this side was still writing
            return Outcome(await stream.code(), await stream.details() or "")
        finally:
            stream.cancel()
