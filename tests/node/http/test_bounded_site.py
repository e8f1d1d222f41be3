"""A new connection takes the place of the oldest: none is locked out, and they are bounded."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
from aiohttp import web

from fakes.authority import Authority
from tandemlog_server.node.http.bounded_site import BoundedSite
from tandemlog_server.node.http.tls_arrivals import HANDSHAKES
from tandemlog_server.node.process.machine_bounds import ConnectionBounds


async def test_the_oldest_connection_goes() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = BoundedSite(runner, "127.0.0.1", 0, bounds=ConnectionBounds(http=3))
    await site.start()
    port = runner.addresses[0][1]
    opened = []
    try:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append((reader, writer))
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert runner.server is not None
        assert len(runner.server.connections) == 3
        for number, (reader, _) in enumerate(opened):
            while line := await asyncio.wait_for(reader.readline(), 10):
                if line == b"\r\n":
                    break
            body = await reader.readexactly(2)
            assert body == b"ok"
            if number < 2:
                assert await asyncio.wait_for(reader.read(), 10) == b""
            else:
                assert not reader.at_eof()
    finally:
        for _, writer in opened:
            writer.close()
        await runner.cleanup()


async def test_the_oldest_handshake_goes_and_none_is_locked_out(tmp_path: Path) -> None:
    """Connections that say nothing of TLS: each would hold a descriptor for ten seconds."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    authority = Authority()
    certificate, key = authority.node("n0").write(tmp_path, "n0")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cadata=authority.pem.decode())
    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = BoundedSite(runner, "127.0.0.1", 0, tls=context)
    await site.start()
    port = runner.addresses[0][1]
    silent = []
    try:
        silent += [await asyncio.open_connection("127.0.0.1", port) for _ in range(HANDSHAKES + 2)]
        for reader, _ in silent[:2]:
            assert await asyncio.wait_for(reader.read(), 10) == b""
        assert site.arrivals is not None
        assert len(site.arrivals) == HANDSHAKES
        assert not silent[-1][0].at_eof()
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{port}/"
            async with session.get(url, ssl=trusting, data=b"x" * 100_000) as got:
                assert await got.text() == "ok"
        # no TLS at all
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert len(site.arrivals) < HANDSHAKES
    finally:
        for _, writer in silent:
            writer.close()
        await runner.cleanup()
