"""One node with a console, in this process, and a browser's requests to it."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from fakes.secured_node import access_text
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.archive_section import ArchiveSection
from tandemlog_server.node.settings.console_section import ConsoleSection
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection
from tandemlog_server.node.settings.security_sections import SecuritySection, TlsSection

ACCESS = access_text(
    operator={"admin": True},
    orders={"read": ["orders"], "write": ["orders"], "consume": ["billing"]},
    nothing={},
)
"""`token(name)` is that of each."""


@dataclass(slots=True)
class Browser:
    """Requests as the pages send them; `csrf` is the session's once there is one."""

    base: str
    http: aiohttp.ClientSession
    tls: ssl.SSLContext | None = None
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        return await self.ask("GET", path, headers=headers)

    async def json(self, path: str) -> Any:
        """The answer, which has to be one."""
        answer = await self.get(path)
        assert answer.status == 200, await answer.text()
        return await answer.json()

    async def post(
        self, path: str, body: Mapping[str, Any], **headers: str
    ) -> aiohttp.ClientResponse:
        own = {"X-CSRF-Token": self.csrf} if self.csrf else {}
        return await self.ask("POST", path, json=body, headers={**own, **headers})

    async def ask(self, method: str, path: str, **arguments: Any) -> aiohttp.ClientResponse:
        headers = {**self.headers, **arguments.pop("headers", {})}
        answer = await self.http.request(
            method,
            self.base + path,
            ssl=self.tls or True,
            headers=headers,
            allow_redirects=False,
            **arguments,
        )
        await answer.read()
        return answer

    async def log_in(self, token: str) -> aiohttp.ClientResponse:
        answer = await self.post("/api/login", {"token": token})
        if answer.status == 200:
            await self.begin()
        return answer

    async def begin(self) -> None:
        """Learn the session's CSRF token."""
        self.csrf = (await self.json("/api/session"))["csrf"]


@asynccontextmanager
async def console_node(
    folder: Path,
    *,
    writes: bool = True,
    access: str = "",
    tls: TlsSection | None = None,
    hosts: tuple[str, ...] = (),
    archive: str = "",
) -> AsyncIterator[Node]:
    """`access` is the text of an access file; empty means that no caller is asked. `archive`: where
    the log is archived."""
    file = folder / "access.toml"
    if access:
        file.write_text(access)
    store = StoreSection(
        directory=folder / "store",
        commit_log_file_size=1 << 20,
        queue_file_size=8_000,
        index_slots=500,
        index_entries=2_000,
    )
    node = Node(
        NodeConfig(
            listen="127.0.0.1:0",
            http_listen="127.0.0.1:0",
            store=store,
            console=ConsoleSection(enabled=True, writes=writes, hosts=hosts),
            security=SecuritySection(access_file=str(file) if access else ""),
            tls=tls or TlsSection(),
            archive=ArchiveSection(url=archive, interval_ms=100),
        )
    )
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def browser_of(node: Node, tls: ssl.SSLContext | None = None) -> AsyncIterator[Browser]:
    scheme = "http" if tls is None else "https"
    jar = aiohttp.CookieJar(unsafe=True)  # that is: also for an address without a name
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        yield Browser(f"{scheme}://{node.endpoints.http}/console", http, tls)


@asynccontextmanager
async def open_console(folder: Path, **settings: Any) -> AsyncIterator[tuple[Node, Browser]]:
    """A node that does not ask who calls, and a browser with its CSRF token."""
    async with console_node(folder, **settings) as node, browser_of(node) as browser:
        await browser.begin()
        yield node, browser
