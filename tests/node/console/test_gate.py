"""Every path of the console is refused without identity, right or CSRF token: by its own table."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from tandemlog_server.node.console.console import OPEN_FILES, Console
from tandemlog_server.node.console.room import WAITS
from tandemlog_server.node.console.visit import Needs, Route
from tandemlog_server.node.node import Node


def routes_of(node: Node) -> list[tuple[Route, str]]:
    """The table, each row with an address that it matches."""
    rows = []
    for route in Console(node).routes():
        path = route.path
        while "{" in path:
            before, _, rest = path.partition("{")
            path = before + "0" + rest.partition("}")[2]
        rows.append((route, path))
    return rows


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[tuple[Node, Browser]]:
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        yield node, browser


async def test_a_stranger_is_refused_every_route_and_learns_nothing(
    secured: tuple[Node, Browser],
) -> None:
    node, browser = secured
    told = set()
    tried = 0
    for route, path in routes_of(node):
        if route.needs is Needs.NOTHING:
            continue
        tried += 1
        answer = await browser.ask(
            route.method, path, **({"json": {}} if route.method == "POST" else {})
        )
        assert answer.status == 401, (route, await answer.text())
        told.add(await answer.text())
    for path in ("/nothing", "/api/nothing", "/../metrics", "/%2e%2e/metrics", "/api/topics/%00"):
        answer = await browser.get(path)
        assert answer.status in (400, 401), path
        if answer.status == 401 and "console" in str(answer.url):
            told.add(await answer.text())
    assert tried > 10
    [text] = told
    for word in (node.config.cluster_id, node.config.node_id, "orders", "operator"):
        assert f'"{word}"' not in text


async def test_what_is_open_to_a_stranger_is_the_way_to_log_in(
    secured: tuple[Node, Browser],
) -> None:
    node, browser = secured
    found = {route.path for route, _ in routes_of(node) if route.needs is Needs.NOTHING}
    assert found == {*(f"/{name}" for name in OPEN_FILES), "/api/login"}
    page = await browser.get("/", Accept="text/html")
    assert page.status == 401
    text = await page.text()
    assert "<title>Log in</title>" in text
    assert node.config.cluster_id not in text.replace("/console/", "")
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")


async def test_a_change_needs_the_right_the_setting_and_the_token(
    tmp_path: Path, secured: tuple[Node, Browser]
) -> None:
    node, browser = secured
    changes = [path for route, path in routes_of(node) if route.needs is Needs.CHANGE]
    posts = [
        path
        for route, path in routes_of(node)
        if route.method == "POST" and route.needs is not Needs.NOTHING
    ]
    assert changes
    assert {route.method for route, _ in routes_of(node)} <= {"GET", "POST"}
    assert (await browser.log_in(token("orders"))).status == 200
    for path in changes:
        answer = await browser.post(path, {"confirm": "0"})
        assert answer.status == 403, path
        assert "lacks the right to administer" in await answer.text()
    assert (await browser.log_in(token("operator"))).status == 200
    for path in posts:
        for wrong in ("", "x" * 32, "\u00fc".encode().decode("latin-1")):
            answer = await browser.post(path, {}, **{"X-CSRF-Token": wrong})
            assert answer.status == 403, path
            assert "CSRF" in await answer.text()
        foreign = await browser.post(path, {}, Origin="http://example.com")
        assert foreign.status == 403
        plain = await browser.ask(
            "POST",
            path,
            data="{}",
            headers={"X-CSRF-Token": browser.csrf, "Content-Type": "text/plain"},
        )
        assert plain.status == 403
        assert "application/json" in await plain.text()
    for path in changes:
        answer = await browser.post(path, {})
        assert answer.status in (400, 404), (path, await answer.text())


async def test_a_console_that_only_shows_changes_nothing(tmp_path: Path) -> None:
    async with open_console(tmp_path, writes=False) as (node, browser):
        for route, path in routes_of(node):
            if route.needs is Needs.CHANGE:
                answer = await browser.post(path, {"confirm": "0"})
                assert answer.status == 403
                assert "writes = true" in await answer.text()
        assert (await browser.json("/api/session"))["writes"] is False


async def test_logging_in_and_out(
    secured: tuple[Node, Browser], caplog: pytest.LogCaptureFixture
) -> None:
    _, browser = secured
    answer = await browser.log_in(token("orders"))
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/console" in cookie
    assert token("orders") not in cookie + caplog.text
    session = await browser.json("/api/session")
    assert session["name"] == "orders"
    assert session["writes"] is False
    assert (await browser.post("/api/logout", {})).status == 200
    assert (await browser.get("/api/session")).status == 401


async def test_a_revoked_token_ends_its_session(
    tmp_path: Path, secured: tuple[Node, Browser]
) -> None:
    node, browser = secured
    await browser.log_in(token("orders"))
    file = tmp_path / "access.toml"
    file.write_text(
        ACCESS.replace('name = "orders"\ntokens = ["sha256:', 'name = "orders"\ntokens = []\n#')
    )
    await node.security.reload_changed()
    assert (await browser.get("/api/session")).status == 401
    file.write_text(ACCESS)
    await node.security.reload_changed()
    assert (await browser.get("/api/session")).status == 401


async def test_wrong_tokens_are_counted(secured: tuple[Node, Browser]) -> None:
    _, browser = secured
    answers = [await browser.log_in(f"guess-{number}") for number in range(8)]
    statuses = [answer.status for answer in answers]
    assert statuses[:5] == [401] * 5
    assert 429 in statuses[5:]
    refused = next(answer for answer in answers if answer.status == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    right = await browser.log_in(token("operator"))
    assert right.status == 429


@pytest.mark.parametrize(
    "body", ["", "[]", "null", '{"token": 3}', '{"token": ""}', "{" * 2000, "\xff"]
)
async def test_a_bad_body_is_refused_with_a_reason(
    secured: tuple[Node, Browser], body: str
) -> None:
    _, browser = secured
    answer = await browser.ask(
        "POST", "/api/login", data=body.encode(), headers={"Content-Type": "application/json"}
    )
    assert answer.status in (400, 401)
    assert (await answer.json())["error"]


async def test_a_name_that_leads_here_reads_nothing(tmp_path: Path) -> None:
    async with open_console(tmp_path, hosts=("queues.example.org",)) as (node, browser):
        port = node.endpoints.http.rpartition(":")[2]
        answer = await browser.get("/api/cluster", Host=f"evil.example.com:{port}")
        assert answer.status == 421
        assert "[console] hosts" in await answer.text()
        for host in ("localhost", f"127.0.0.1:{port}", "[::1]:80", "Queues.Example.org"):
            assert (await browser.get("/api/session", Host=host)).status == 200, host


async def test_no_console_no_path(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (_, browser):
        assert (await browser.get("/nothing")).status == 404
        assert (await browser.ask("DELETE", "/api/cluster")).status == 404
        root = browser.base.removesuffix("/console")
        async with browser.http.get(f"{root}/console", allow_redirects=False) as answer:
            assert answer.status == 308
        async with browser.http.get(f"{root}/metrics") as answer:
            assert answer.status == 200


async def test_changes_are_in_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tandemlog.audit")
    async with open_console(tmp_path) as (_, browser):
        answer = await browser.post("/api/cluster/master", {"node": "n0", "confirm": "n0"})
        assert answer.status == 400
        body = await answer.json()
        [line] = [each for each in caplog.messages if "console /api/cluster/master" in each]
        assert "who=anyone from=127.0.0.1:" in line
        assert "node: 'n0'" in line
        assert body["error"].partition(":")[0] in line


async def test_many_tabs_do_not_lock_a_browser_out(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (_, browser):
        seen = (await browser.json("/api/cluster"))["seen"]
        tabs = [asyncio.create_task(browser.get(f"/api/cluster?seen={seen}")) for _ in range(40)]
        await asyncio.sleep(0.3)
        assert (await browser.get("/")).status == 200
        assert (await browser.get("/api/topics")).status == 200
        statuses = [(await each).status for each in tabs]
        assert set(statuses) <= {200, 429}
        assert statuses.count(200) >= WAITS


async def test_another_page_of_the_browser_reads_nothing(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (_, browser):
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
            answer = await browser.get("/api/cluster", **{"Sec-Fetch-Site": site})
            assert answer.status == status, site
        # a link to the console is followed
        assert (await browser.get("/", **{"Sec-Fetch-Site": "cross-site"})).status == 200


@pytest.mark.parametrize("token", ["\ud800", "\x00", "a b", "ü" * 40, "x" * 4_000])
async def test_a_token_that_is_none_is_a_wrong_one(
    secured: tuple[Node, Browser], token: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, browser = secured
    answer = await browser.log_in(token)
    assert answer.status == 401
    assert "Traceback" not in caplog.text


async def test_a_stranger_sends_little(secured: tuple[Node, Browser]) -> None:
    _, browser = secured
    body = b'{"token": "' + b"x" * 5_000 + b'"}'
    headers = {"Content-Type": "application/json"}
    answer = await browser.ask("POST", "/api/login", data=body, headers=headers)
    assert answer.status == 400
    assert "more than 4096 bytes" in await answer.text()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 1_000

    answer = await browser.ask("POST", "/api/login", data=pieces(), headers=headers)
    assert answer.status == 400


async def test_lines_of_who_may_not_administer_are_bounded(
    secured: tuple[Node, Browser], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tandemlog.audit")
    _, browser = secured
    await browser.log_in(token("nothing"))
    for _ in range(40):
        await browser.post("/api/messages/send", {"confirm": "orders", "topic": "orders"})
    lines = [each for each in caplog.messages if "console /api/messages/send" in each]
    assert 0 < len(lines) < 20


async def test_a_line_names_what_was_changed_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tandemlog.audit")
    async with open_console(tmp_path) as (_, browser):
        body = {"aaa": "z" * 5_000, "confirm": "n0", "node": "n0"}
        await browser.post("/api/cluster/master", body)
        [line] = [each for each in caplog.messages if "console /api/cluster/master" in each]
        assert "confirm: 'n0'" in line
        assert "z" * 200 not in line


async def test_numbers_beyond_reason_are_refused(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (_, browser):
        await browser.post(
            "/api/topics/create", {"name": "orders", "queues": 1, "confirm": "orders"}
        )
        body = {"topic": "orders", "confirm": "orders", "body": "x", "delay_ms": 10**30}
        answer = await browser.post("/api/messages/send", body)
        assert answer.status == 400, await answer.text()
        assert "delay_ms" in await answer.text()
