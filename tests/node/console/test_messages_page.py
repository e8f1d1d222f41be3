"""The console's page of messages: what is found and shown of them, and what cannot be asked."""

import base64
import json
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fakes.inner_node import dispatched
from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from tandemlog.admin import AsyncAdmin
from tandemlog.errors import AuthenticationError
from tandemlog.message import Message, SendResult
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog_server.node.console import walk
from tandemlog_server.node.console.answers import fault_of
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import TopicConfig

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>\x00\x1b[31m\u202e'


@dataclass
class Site:
    """A node with a topic `orders` of two queues, as a browser sees it."""

    node: Node
    browser: Browser

    async def get(self, path: str = "", **parameters: Any) -> Any:
        return await self.browser.json(f"/api/messages{path}?{urlencode(parameters)}")

    async def refused(self, path: str, status: int, **parameters: Any) -> str:
        answer = await self.browser.get(f"/api/messages{path}?{urlencode(parameters)}")
        assert answer.status == status, await answer.text()
        return str((await answer.json())["error"])

    async def send(self, body: bytes, queue: int = 0, **fields: Any) -> SendResult:
        options = ProducerOptions(linger_ms=0, compress_above=fields.pop("compress_above", 1 << 30))
        async with AsyncProducer(self.node.endpoints.listen, options) as producer:
            message = Message(fields.pop("topic", "orders"), body, queue_id=queue, **fields)
            sent = await (await producer.send(message))
        await dispatched(self.node)
        return sent


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_console(tmp_path) as (node, browser):
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.create_topic("orders", 2)
        yield Site(node, browser)


def topic_config(name: str) -> TopicConfig:
    return TopicConfig(name, 2, 2)


def offsets(page: Any) -> list[tuple[int, int]]:
    return [(row["queue_id"], row["queue_offset"]) for row in page["rows"]]


async def fill(site: Site, count: int, body: Callable[[int], bytes] = lambda n: b"%d" % n) -> None:
    """Messages in turn to the two queues, so that the log has them alternating."""
    for number in range(count):
        properties = {"even": str(number % 2 == 0), "n": str(number)}
        await site.send(body(number), number % 2, properties=properties)


async def test_the_newest_come_first_over_all_queues_and_pages_meet(site: Site) -> None:
    await fill(site, 7)
    first = await site.get(topic="orders", count=3)
    assert offsets(first) == [(0, 3), (1, 2), (0, 2)]
    assert first["queues"] == 2
    second = await site.get(topic="orders", count=3, at=first["older"])
    assert offsets(second) == [(1, 1), (0, 1), (1, 0)]
    assert not second["ended"]
    third = await site.get(topic="orders", count=3, at=second["older"])
    assert offsets(third) == [(0, 0)]
    assert third["ended"]
    back = await site.get(topic="orders", count=3, at=third["newer"], direction="forward")
    assert offsets(back) == [(1, 0), (0, 1), (1, 1)]
    # what is sent later is behind the newest page
    await site.send(b"later", 1)
    later = await site.get(topic="orders", at=first["newer"], direction="forward")
    assert [row["preview"] for row in later["rows"]] == ["later"]


async def test_an_offset_and_a_time_are_on_the_page_in_both_directions(site: Site) -> None:
    await fill(site, 8)
    page = await site.get(topic="orders", queue=1, offset=2)
    assert offsets(page)[0] == (1, 2)
    page = await site.get(topic="orders", queue=1, offset=2, direction="forward")
    assert offsets(page) == [(1, 2), (1, 3)]
    [row] = (await site.get(topic="orders", queue=0, offset=1, count=1))["rows"]
    at = row["store_timestamp"]
    forward = await site.get(topic="orders", time=at, direction="forward")
    assert (0, 1) in offsets(forward)
    assert all(row["store_timestamp"] >= at for row in forward["rows"])
    back = await site.get(topic="orders", time=at)
    assert (0, 1) in offsets(back)
    assert all(row["store_timestamp"] <= at for row in back["rows"])
    assert (await site.get(topic="orders", time=1))["rows"] == []
    assert len((await site.get(topic="orders", time=1 << 50))["rows"]) == 8
    assert (await site.get(topic="orders", time=1 << 50, direction="forward"))["rows"] == []


async def test_a_filter_says_how_far_it_looked(site: Site) -> None:
    await fill(site, 20)
    page = await site.get(topic="orders", where="n BETWEEN 4 AND 9 AND even = 'True'")
    assert [row["preview"] for row in page["rows"]] == ["8", "6", "4"]
    assert page["looked_at"] == 20
    assert page["ended"]


async def test_a_filter_that_finds_nothing_in_time_is_continued(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(site, 20)
    monkeypatch.setattr(walk, "FIRST_FILTERED", 2)
    monkeypatch.setattr(walk, "MOST_FILTERED", 2)
    monkeypatch.setattr(walk, "AT_ONCE", 1)
    monkeypatch.setattr(walk, "TIME_S", -1)
    found, looked_at, at, pages = [], 0, "", 0
    while True:
        page = await site.get(topic="orders", where="n = 0", **({"at": at} if at else {}))
        found += offsets(page)
        looked_at += page["looked_at"]
        at, pages = page["older"], pages + 1
        if page["ended"]:
            break
    assert found == [(0, 0)]
    assert looked_at == 20
    assert pages == 10


async def test_large_and_hostile_bodies_have_short_rows(site: Site) -> None:
    await site.send(HOSTILE.encode(), keys="k")
    await site.send(b"\xff\xfe" * 100_000)
    await site.send(b"0" * 4_000_000, compress_above=100)
    rows = (await site.get(topic="orders"))["rows"]
    assert rows[2]["preview"] == HOSTILE[:120]
    assert rows[1]["preview"] == "\ufffd" * 120
    assert (rows[0]["compressed"], rows[0]["preview"]) == (True, "")
    assert rows[0]["body_bytes"] < 100_000


async def test_by_key_tag_and_both_ids(site: Site) -> None:
    sent = await site.send(b"one", keys="blue", tags="t")
    await site.send(b"two", keys="blue")
    found = await site.get("/find", topic="orders", key="blue")
    assert [row["preview"] for row in found["rows"]] == ["two", "one"]
    assert not found["more"]
    message = await site.get("/message", topic="orders", queue=0, offset=0)
    for parameters in (
        {"id": sent.msg_id},
        {"id": f" {sent.msg_id} "},
        {"id": message["uniq_key"], "topic": "orders"},
        {"key": message["uniq_key"], "topic": "orders"},
    ):
        assert offsets(await site.get("/find", **parameters)) == [(0, 0)]
    assert (await site.get("/find", topic="orders", key=HOSTILE))["rows"] == []
    late = found["rows"][0]["store_timestamp"] + 1
    assert (await site.get("/find", topic="orders", key="blue", begin=late))["rows"] == []


async def test_all_that_is_known_of_one(site: Site) -> None:
    sent = await site.send(
        b'{"a": 1}', 1, keys=["x", "y"], tags="T", properties={HOSTILE.strip("\x00"): HOSTILE}
    )
    found = await site.get("/message", topic="orders", queue=1, offset=0)
    assert found["keys"] == ["x", "y"]
    assert found["tags"] == "T"
    assert found["msg_id"] == sent.msg_id
    assert [HOSTILE.strip("\x00"), HOSTILE] in found["properties"]
    size = site.node.store.log.file_size
    assert found["place"]["file"] == f"{sent.physical_offset // size * size:020d}"
    assert found["place"]["position"] == sent.physical_offset % size
    record = (site.node.config.store.directory / "commitlog" / found["place"]["file"]).read_bytes()
    raw = record[found["place"]["position"] :][: found["size"]]
    assert int.from_bytes(raw[:4], "big") == found["size"]
    assert b'{"a": 1}' in raw
    assert base64.b64decode(found["body"]["shown"]) == b'{"a": 1}'
    assert found["body"]["not_utf8_at"] == -1


async def test_a_body_is_shown_in_part_and_given_whole(site: Site) -> None:
    body = b"a" * 70_000 + b"\xff" + b"<script>" * 10_000
    await site.send(body, compress_above=100)
    found = await site.get("/message", topic="orders", queue=0, offset=0)
    assert found["compression"] == "zlib"
    assert found["stored_body_bytes"] == len(zlib.compress(body)) or (
        found["stored_body_bytes"] < 1_000
    )
    shown = found["body"]
    assert (shown["bytes"], shown["shown_bytes"]) == (len(body), 64 << 10)
    assert shown["not_utf8_at"] == 70_000
    assert base64.b64decode(shown["shown"]) == body[: 64 << 10]
    answer = await site.browser.get("/api/messages/body?topic=orders&queue=0&offset=0")
    assert await answer.read() == body
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="orders-0-0.bin"'
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_wrong_parameters_are_named(site: Site) -> None:
    await fill(site, 2)
    assert "topic" in await site.refused("", 400)
    assert "not there" not in await site.refused("", 404, topic="nowhere")
    assert "direction" in await site.refused("", 400, topic="orders", direction="up")
    assert "at:" in await site.refused("", 400, topic="orders", at="0:x")
    assert "at:" in await site.refused("", 400, topic="orders", at="\u0665:1")
    assert "0..1" in await site.refused("", 404, topic="orders", queue=2)
    assert "one queue" in await site.refused("", 400, topic="orders", offset=1)
    assert "count" in await site.refused("", 400, topic="orders", count=201)
    assert await site.refused("", 400, topic="orders", where="n >")
    assert await site.refused("", 400, topic="orders", queue="1e3")
    assert "one of" in await site.refused("/find", 400, topic="orders")
    assert "one of" in await site.refused("/find", 400, topic="orders", key="a", id="b")
    assert "hexadecimal" in await site.refused("/find", 400, id="zz")
    assert await site.refused("/find", 404, topic=HOSTILE, key="a")
    for path in ("/message", "/life", "/body"):
        assert "no message" in await site.refused(path, 404, topic="orders", queue=0, offset=9)
        assert await site.refused(path, 400, topic="orders", queue=0, offset=-1)


async def test_places_outside_what_a_queue_holds_are_no_error(site: Site) -> None:
    await fill(site, 4)
    assert len((await site.get(topic="orders", at="0:999999,1:0,7:3"))["rows"]) == 2
    assert (await site.get(topic="orders", queue=0, offset=1 << 50, direction="forward"))[
        "rows"
    ] == []


async def test_topics_by_part_of_their_name(site: Site) -> None:
    async with AsyncAdmin(site.node.endpoints.listen) as admin:
        for name in ("returned-orders", "other"):
            await admin.create_topic(name, 1)
    found = await site.get("/topics", like="ORD")
    assert found == {"topics": ["orders", "returned-orders"], "more": False}


SENT = {
    "topic": "orders", "confirm": "orders", "body": "gr\u00fcn", "keys": "a b", "tags": "t",
    "properties": {"p": "v"},
}  # fmt: skip


async def test_one_is_sent(site: Site) -> None:
    answer = await site.browser.post("/api/messages/send", {**SENT, "queue": 1})
    assert answer.status == 200, await answer.text()
    sent = await answer.json()
    assert (sent["queue_id"], sent["queue_offset"]) == (1, 0)
    found = await site.get("/message", topic="orders", queue=1, offset=0)
    assert base64.b64decode(found["body"]["shown"]).decode() == "gr\u00fcn"
    assert (found["keys"], found["tags"]) == (["a", "b"], "t")
    assert ["p", "v"] in found["properties"]
    raw = {**SENT, "queue": 1, "encoding": "base64", "body": base64.b64encode(b"\xff\0").decode()}
    assert (await site.browser.post("/api/messages/send", raw)).status == 200
    found = await site.get("/message", topic="orders", queue=1, offset=1)
    assert base64.b64decode(found["body"]["shown"]) == b"\xff\0"


async def test_one_is_sent_for_later(site: Site) -> None:
    answer = await site.browser.post("/api/messages/send", {**SENT, "delay_ms": 3_600_000})
    sent = await answer.json()
    assert sent["deliver_at_ms"] - sent["store_timestamp"] == 3_600_000
    assert (await site.get(topic="orders"))["rows"] == []


@pytest.mark.parametrize(
    ("changed", "status", "word"),
    [
        ({"confirm": "order"}, 400, "confirm"),
        ({"topic": "nowhere", "confirm": "nowhere"}, 404, "nowhere"),
        ({"topic": "%RETRY%" + "x" * 300, "confirm": "%RETRY%" + "x" * 300}, 400, ""),
        ({"body": 7}, 400, "body"),
        ({"body": "\ud800"}, 400, "Unicode"),
        ({"body": "!", "encoding": "base64"}, 400, "base64"),
        ({"properties": {"p": 1}}, 400, "texts"),
        ({"properties": {"a\x01b": "v"}}, 400, ""),
        ({"properties": {"KEYS": "v"}}, 400, ""),
        ({"queue": 7}, 404, "7"),
        ({"queue": "1"}, 400, "queue"),
        ({"delay_ms": -1}, 400, "delay_ms"),
        ({"tags": "a||b"}, 400, ""),
    ],
)
async def test_what_cannot_be_sent(
    site: Site, changed: dict[str, Any], status: int, word: str
) -> None:
    answer = await site.browser.post("/api/messages/send", {**SENT, **changed})
    text = await answer.text()
    assert answer.status == status, text
    assert word in text
    assert (await site.get(topic="orders"))["rows"] == []


async def test_rights_are_those_of_the_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        site = Site(node, browser)
        assert (await browser.log_in(token("operator"))).status == 200
        for name in ("orders", "secret"):
            node.store.create_topic(topic_config(name))
        secret = {**SENT, "topic": "secret", "confirm": "secret", "body": "told to no log"}
        answer = await browser.post("/api/messages/send", secret)
        assert answer.status == 200, await answer.text()
        msg_id = (await answer.json())["msg_id"]
        assert "told to no log" not in caplog.text
        assert "of 14 characters" in caplog.text

        assert (await browser.log_in(token("orders"))).status == 200
        session = await browser.json("/api/session")
        assert (session["writes"], session["sends"]) == (False, True)
        answer = await browser.post("/api/messages/send", SENT)
        assert answer.status == 200, await answer.text()
        await dispatched(site.node)
        assert len((await site.get(topic="orders"))["rows"]) == 1
        assert (await site.get("/topics"))["topics"] == ["orders"]
        assert (await browser.post("/api/messages/send", secret)).status == 403
        place = {"topic": "secret", "queue": 0, "offset": 0}
        for path in ("/message", "/life", "/body"):
            assert "secret" not in json.dumps(await site.refused(path, 403, **place)).replace(
                "'secret'", ""
            )
        await site.refused("", 403, topic="secret")
        await site.refused("/find", 403, topic="secret", key="a")
        await site.refused("/find", 403, id=msg_id)

        assert (await browser.log_in(token("nothing"))).status == 200
        assert (await site.get("/topics"))["topics"] == []
        await site.refused("", 403, topic="orders")


async def test_a_console_that_only_shows_sends_nothing(tmp_path: Path) -> None:
    async with open_console(tmp_path, writes=False) as (node, browser):
        node.store.create_topic(topic_config("orders"))
        answer = await browser.post("/api/messages/send", SENT)
        assert answer.status == 403
        assert "writes = true" in await answer.text()
        assert (await browser.json("/api/session"))["sends"] is False


async def test_a_damaged_record_is_named_and_the_others_are_shown(site: Site) -> None:
    sent = await site.send(b"0123456789")
    await site.send(b"whole")
    file = site.node.config.store.directory / "commitlog" / f"{0:020d}"
    with file.open("r+b") as log:
        log.seek(sent.physical_offset)
        at = log.read(1_000).index(b"0123456789")
        log.seek(sent.physical_offset + at)
        log.write(b"X")
    whole, damaged = (await site.get(topic="orders"))["rows"]
    assert whole["preview"] == "whole"
    assert "body_crc" in damaged["fault"]
    assert (damaged["queue_id"], damaged["queue_offset"]) == (0, 0)
    found = await site.get("/message", topic="orders", queue=0, offset=0)
    assert "body_crc" in found["fault"]
    assert found["physical_offset"] == sent.physical_offset
    for path in ("/body", "/life"):
        assert "body_crc" in await site.refused(path, 409, topic="orders", queue=0, offset=0)


def test_a_proof_that_another_node_does_not_know_is_no_lost_session() -> None:
    """The page would log in again, and again: its session is known here."""
    assert fault_of(AuthenticationError("unknown token")).status == 403
