"""Messages in a browser, by keyboard: found by key, read as text, JSON and hex, and sent."""

import re
from pathlib import Path

import pytest
from console.chromium import Tab, tab
from playwright.sync_api import Browser, expect

from helpers.elected import Elected
from tandemlog import Message, Producer

pytestmark = pytest.mark.browser

HOSTILE = (
    b'<img src=x onerror="document.title=\'run\'"><script>document.title="run"</script>'
    b"\x00\x1b[31m" + "\u202eabc".encode() + b"\xff\xfe"
)
LARGE = b"\x00<script>\xff" * 419_000


@pytest.fixture(scope="module")
def base(cluster: Elected) -> str:
    cluster.tandemlog("topic", "create", "orders", "--queues", "2")
    with Producer(cluster.endpoints) as producer:
        for key, body in (
            ("hostile", HOSTILE),
            ("large", LARGE),
            ("json", b'{"id": 12345678901234567890, "twice": 1, "twice": 1.10, "list": [{}, []]}'),
        ):
            message = Message("orders", body, keys=key, queue_id=0, properties={"<b>": key})
            producer.send(message).result()
    return f"{cluster.nodes[0].http}/console/"


def find(opened: Tab, key: str) -> None:
    """As a person without a mouse does it."""
    page = opened.page
    page.get_by_label("Topic", exact=True).first.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("orders")
    page.keyboard.press("Tab")
    page.keyboard.type("with a key")
    page.keyboard.press("Tab")
    page.keyboard.type(key)
    page.keyboard.press("Enter")
    link = page.get_by_role("link", name="0, ")
    expect(link).to_have_count(1)
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Its life")).to_be_visible()


def test_a_hostile_body_is_shown_as_it_is_and_does_nothing(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/messages", width=390) as opened:
        page = opened.page
        find(opened, "hostile")
        panel = page.get_by_role("tabpanel")
        expect(panel).to_contain_text('<script>document.title="run"</script>')
        expect(panel).to_contain_text("\u27e800\u27e9\u27e81B\u27e9[31m\u27e8U+202E\u27e9abc")
        expect(page.get_by_text("It is not UTF-8")).to_be_visible()
        page.get_by_role("tab", name="Text").focus()
        page.keyboard.press("ArrowRight")
        expect(panel).to_contain_text("UTF-8, can be read as JSON")
        page.keyboard.press("End")
        expect(panel).to_contain_text("00000000  3c 69 6d 67")
        expect(page.get_by_role("tab", name="Hex")).to_be_focused()
        expect(page.locator("ol.life li").first).to_contain_text("A producer at")
        assert "run" not in page.title()
        assert page.locator("main img, main script").count() == 0
        assert opened.faults == []
        assert opened.axe() == []
        assert opened.too_wide() <= 0


def test_a_large_body_is_shown_in_part_and_downloaded_whole(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/messages") as opened:
        page = opened.page
        find(opened, "large")
        expect(page.get_by_text("The first 65,536 of 4,190,000 bytes")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert download.value.suggested_filename == "orders-0-1.bin"
        assert Path(download.value.path()).read_bytes() == LARGE
        assert opened.faults == []


def test_json_keeps_its_digits(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/messages") as opened:
        find(opened, "json")
        expect(opened.page.get_by_role("tab", name="JSON")).to_have_attribute(
            "aria-selected", "true"
        )
        shown = opened.page.get_by_role("tabpanel").inner_text()
        assert [line.strip() for line in shown.splitlines()] == [
            "{", '"id": 12345678901234567890,', '"twice": 1,', '"twice": 1.10,', '"list": [',
            "{},", "[]", "]", "}",
        ]  # fmt: skip


def test_one_is_sent_and_found_by_its_link(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/messages?topic=orders") as opened:
        page = opened.page
        page.get_by_text("Send a message", exact=True).focus()
        page.keyboard.press("Enter")
        form = page.get_by_role("form", name="Send a message")
        form.get_by_label("Queue").fill("1")
        form.get_by_label("Properties").fill("no property")
        form.get_by_label("Body").first.fill("by hand")
        form.get_by_role("button", name="Send").press("Enter")
        expect(form.get_by_role("alert")).to_contain_text("no name=value")
        form.get_by_label("Properties").fill("a=b=c")
        form.get_by_role("button", name="Send").press("Enter")
        page.get_by_role("dialog").get_by_role("button", name="Send").press("Enter")
        form.get_by_role("link", name="orders, queue 1").press("Enter")
        expect(page.get_by_role("tabpanel")).to_contain_text("by hand")
        expect(page.get_by_role("row", name="a b=c")).to_be_visible()
        assert opened.faults == []


def test_pages_meet_and_going_back_shows_the_one_before(chromium: Browser, base: str) -> None:
    address = f"{base}#/messages?topic=orders&queue=0&by=offset&value=1"
    with tab(chromium, address) as opened:
        page = opened.page
        expect(page.get_by_role("link", name="0, 1", exact=True)).to_be_visible()
        page.get_by_role("link", name="Older messages").press("Enter")
        expect(page.get_by_role("link", name="0, 0", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="0, 1", exact=True)).to_have_count(0)
        page.go_back()
        expect(page.get_by_role("link", name="0, 1", exact=True)).to_be_visible()


def test_an_address_with_a_time_means_the_same_in_another_zone(
    chromium: Browser, base: str
) -> None:
    with tab(chromium, f"{base}#/messages?topic=orders", zone="Asia/Tokyo") as opened:
        page = opened.page
        expect(page.get_by_text("Asia/Tokyo, now UTC+09:00")).to_be_visible()
        page.get_by_label("Show", exact=True).select_option("time")
        time = page.get_by_label("Stored at or after")
        time.fill("2026-01-02T12:00:00.250")
        time.press("Enter")
        expect(page).to_have_url(re.compile("value=1767322800250"))
        expect(page.get_by_text("messages were looked at")).to_be_visible()
        address = page.url
        assert opened.axe() == []
    with tab(chromium, address, zone="America/New_York", width=390) as opened:
        time = opened.page.get_by_label("Stored at or after")
        expect(time).to_have_value(re.compile(r"^2026-01-01T22:00:00\.25"))
        expect(opened.page.get_by_text("messages were looked at")).to_be_visible()
        assert opened.too_wide() <= 0


def test_a_time_that_cannot_be_read_is_an_error(chromium: Browser, base: str) -> None:
    address = f"{base}#/messages?topic=orders&by=time&value=yesterday"
    with tab(chromium, address) as opened:
        alert = opened.page.get_by_role("alert").filter(has_text="cannot be read: yesterday")
        expect(alert).to_be_visible()
        # an empty time is not sent
        opened.page.get_by_role("button", name="Show").click()
        assert opened.page.url == address
