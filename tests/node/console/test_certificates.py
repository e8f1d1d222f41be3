"""A browser with a client certificate is logged in by it, and asks the node as its identity."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.secured_node import access_text
from helpers.console_node import browser_of, console_node
from helpers.made_certificates import Authority
from tandemlog_server.node.certs.authority import OwnerKind
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.security_sections import TlsSection

ACCESS = access_text(
    operator={"admin": True, "certificates": ["operator"]},
    orders={"read": ["orders"], "certificates": ["orders"]},
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "tandemlog")


@pytest.fixture(params=["access file", "certificates alone"])
async def node(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority
) -> AsyncIterator[Node]:
    own = authority.make(OwnerKind.NODE, "n0", ("127.0.0.1",))
    by_file = request.param == "access file"
    tls = TlsSection(
        ca_file=authority.ca_file,
        cert_file=str(own),
        key_file=str(own.with_suffix(".key")),
        client_certificates="required",
    )
    async with console_node(tmp_path, access=ACCESS if by_file else "", tls=tls) as node:
        yield node


def context(authority: Authority, name: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.ca_file)
    if name:
        client = authority.client(name)
        made.load_cert_chain(client.cert_file, client.key_file)
    return made


async def test_a_browser_without_a_certificate_is_a_stranger(
    node: Node, authority: Authority
) -> None:
    async with browser_of(node, context(authority)) as browser:
        for path in ("/", "/api/session", "/api/cluster"):
            assert (await browser.get(path)).status == 401


async def test_a_certificate_is_a_session(node: Node, authority: Authority) -> None:
    async with browser_of(node, context(authority, "operator")) as browser:
        await browser.begin()
        session = await browser.json("/api/session")
        assert session["name"] == "operator"
        assert session["by_certificate"]
        assert session["csrf"] == browser.csrf
        # it asks the node over TLS, as this identity: the reason comes from there
        answer = await browser.post("/api/cluster/master", {"node": "n0", "confirm": "n0"})
        assert "no coordinator" in await answer.text()


async def test_two_certificates_are_two_sessions(node: Node, authority: Authority) -> None:
    async with (
        browser_of(node, context(authority, "operator")) as operator,
        browser_of(node, context(authority, "orders")) as orders,
    ):
        await operator.begin()
        await orders.begin()
        assert operator.csrf != orders.csrf
        answer = await orders.post("/api/logout", {}, **{"X-CSRF-Token": operator.csrf})
        assert answer.status == 403
