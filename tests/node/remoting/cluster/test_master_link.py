"""The connection to the door of another node."""

import asyncio

import pytest

from tandemlog_server.node.remoting.cluster.master_link import MasterLink, NotSentError
from tandemlog_server.rocketmq.clients.handed_on import HANDED_ON
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG, Command


async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A node that takes everything and says nothing."""
    await reader.read()
    writer.close()


@pytest.mark.parametrize("flag", [0, ONEWAY_FLAG])
async def test_a_connection_that_is_lost_as_it_begins_takes_no_request_along(
    monkeypatch: pytest.MonkeyPatch, flag: int
) -> None:
    """A node that is killed just now accepts and resets. Nothing was written, so the request is
    tried again at once: it must not wait for an answer, nor count as one that may be done."""
    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    link = MasterLink(f"{host}:{port}")
    connect = link._connect

    async def lost_at_once():  # type: ignore[no-untyped-def]
        wire = await connect()
        wire.connection_lost(ConnectionResetError())
        return wire

    monkeypatch.setattr(link, "_connect", lost_at_once)
    async with asyncio.timeout(10):
        with pytest.raises(NotSentError, match="ended"):
            await link.call(Command(310, 7, flag), HANDED_ON, 60.0)
    assert link.in_flight == 0
    link.close()
    server.close()
