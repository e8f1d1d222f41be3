"""A name server of RocketMQ for one broker name: what it was told, and when it is told no more."""

import asyncio
import json

from tandemlog_server.rocketmq.wire import requests
from tandemlog_server.rocketmq.wire.remoting import (
    SYSTEM_ERROR,
    Command,
    CommandReader,
    encode_command,
)


class RemotingPeer:
    """Answers requests by `answers`, code -> body; every other one with `refusal`. `got` has all
    that came."""

    def __init__(self, answers: dict[int, bytes], refusal: int = SYSTEM_ERROR) -> None:
        self.answers = answers
        self.refusal = refusal
        self.got: list[Command] = []
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_off()
        await self._server.wait_closed()

    def cut_off(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def codes(self) -> list[int]:
        return [command.code for command in self.got]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        commands = CommandReader()
        try:
            while data := await reader.read(1 << 16):
                for request in commands.feed(data):
                    self.got.append(request)
                    body = self.answers.get(request.code)
                    response = (
                        request.response(code=self.refusal, remark="no")
                        if body is None
                        else request.response(body)
                    )
                    writer.write(encode_command(response))
        except OSError:
            return
        finally:
            self._writers.discard(writer)
            writer.close()


def name_server(broker_name: str, master: str = "") -> RemotingPeer:
    """One that knows `master` as broker 0 of this name."""
    return RemotingPeer(
        {
            requests.GET_BROKER_CLUSTER_INFO: cluster_info(broker_name, master),
            requests.REGISTER_BROKER: b"",
            requests.UNREGISTER_BROKER: b"",
        }
    )


def cluster_info(broker_name: str, master: str) -> bytes:
    """As fastjson writes it: the ids are keys without quotes."""
    known = json.dumps(broker_name) + ':{"brokerAddrs":{0:' + json.dumps(master) + "}}"
    return b'{"brokerAddrTable":{' + (known.encode() if master else b"") + b"}}"
