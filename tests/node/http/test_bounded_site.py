"""A new connection takes the place of the oldest: none is locked out, and they are bounded."""

import asyncio

from aiohttp import web

from node.http.bounded_site import BoundedSite


async def test_the_oldest_connection_goes() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = BoundedSite(runner, "127.0.0.1", 0, at_most=3)
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
