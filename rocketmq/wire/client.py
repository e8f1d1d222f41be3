"""Requests to a broker or a name server: one connection, one request after the other."""

import asyncio
import socket
from collections.abc import Mapping
from itertools import count

from tandemlog.format.words import quoted, shortened
from tandemlog_server.ha.errors import ProtocolError

from .errors import BrokerError, BrokerRefusedError, NoBrokerError
from .remoting import MAX_COMMAND_BYTES, SUCCESS, Command, CommandReader, encode_command

CONNECT_S = 3.0
CALL_S = 5.0
READ_BYTES = 64 << 10


class RemotingClient:
    """`async with` it. Lives in one event loop. Raises BrokerError in every case but a response
    that says that all is well."""

    def __init__(self, host: str, port: int, *, timeout_s: float = CALL_S) -> None:
        self.address = f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"
        self._host, self._port = host, port
        self._timeout_s = timeout_s
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._commands = CommandReader()
        self._opaque = count(1)

    async def __aenter__(self) -> "RemotingClient":
        link = await connected_socket(self._host, self._port)
        self._reader, self._writer = await asyncio.open_connection(sock=link)
        return self

    async def __aexit__(self, *_: object) -> None:
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()

    async def call(
        self,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        most_bytes: int = MAX_COMMAND_BYTES,
    ) -> Command:
        """The response to the request `code`, of at most `most_bytes`. Raises BrokerRefusedError if
        it says no."""
        self._commands.max_bytes = most_bytes
        request = Command(code, next(self._opaque), fields=fields or {}, body=body)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._exchanged(request)
        except TimeoutError:
            raise BrokerError(
                f"{self.address} did not answer request {code} within {self._timeout_s:g} s"
            ) from None
        except (OSError, ProtocolError) as error:
            raise BrokerError(f"{self.address}, request {code}: {error}") from error
        if response.code != SUCCESS:
            raise BrokerRefusedError(
                f"{self.address} refused request {code} with code {response.code}: "
                f"{shortened(response.remark) or 'no reason given'}",
                response.code,
            )
        return response

    async def _exchanged(self, request: Command) -> Command:
        if self._reader is None or self._writer is None:
            raise BrokerError(f"the connection to {self.address} is closed")
        self._writer.write(encode_command(request))
        await self._writer.drain()
        while True:
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise BrokerError(f"{self.address} closed the connection")
            for command in self._commands.feed(data):
                # anything else is a broker's own request, or the late answer to an earlier one
                if command.is_response and command.opaque == request.opaque:
                    return command


async def connected_socket(host: str, port: int) -> socket.socket:
    """A TCP connection that does not block. Raises NoBrokerError if no process listens there, else
    BrokerError."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        async with asyncio.timeout(CONNECT_S):
            return await _open(host, port)
    except TimeoutError:
        raise BrokerError(
            f"{place} did not answer within {CONNECT_S:g} s: the host is down, or a firewall drops "
            "the packets"
        ) from None
    except ConnectionRefusedError:
        raise NoBrokerError(f"no process listens on {place}") from None
    except OSError as error:
        raise BrokerError(f"{place} cannot be reached: {error.strerror or error}") from error
    except (ValueError, OverflowError) as error:
        # a host that no resolver takes, or a port that no socket takes, as a name server gave it
        raise BrokerError(f"{quoted(place)} is no host and port: {error}") from None


async def _open(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    fault: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        link = socket.socket(family, kind, protocol)
        try:
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(link, address)
        except OSError as error:
            fault = error
            link.close()
        except BaseException:
            link.close()
            raise
        else:
            return link
    raise fault
