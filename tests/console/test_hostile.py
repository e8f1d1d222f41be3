"""Bodies, keys and properties that want to be markup, orders or bytes: shown, and harmless."""

import pytest
from console.chromium import tab
from playwright.sync_api import Browser, expect

from helpers.elected import Elected
from tandemlog import Message, Producer

pytestmark = pytest.mark.browser

MARKUP = (
    '<img src=x onerror="window.hit=1"><script>window.hit=1</script>'
    '<svg onload="window.hit=1"></svg><iframe src="javascript:parent.hit=1"></iframe>'
)
BODIES = {
    "markup": MARKUP.encode(),
    "json": b'{"html": "<script>window.hit=1</script>", "__proto__": {"hit": 1}}',
    "control": bytes(range(32)) + b"\x7f\xc2\x85" + "\u202eevil\u2066".encode(),
    "not UTF-8": b"\xff\xfe\x80<b>bold</b>\xc3",
    "4 MB": b"0123456789abcdef" * 250_000,
    "empty JSON": b"[]",
}


@pytest.fixture(scope="module")
def places(cluster: Elected) -> dict[str, str]:
    """Address of each message's page."""
    cluster.tandemlog("topic", "create", "hostile", "--queues", "1")
    base = f"{cluster.nodes[0].http}/console/#/messages/hostile/0"
    found = {}
    with Producer(cluster.endpoints) as producer:
        for number, (name, body) in enumerate(BODIES.items()):
            message = Message(
                "hostile",
                body,
                keys=f"{MARKUP.replace(' ', '/')}-{number}",
                tags="<b>tag</b>",
                properties={"<script>window.hit=1</script>": MARKUP, "toString": "x"},
            )
            sent = producer.send(message).result()
            found[name] = f"{base}/{sent.queue_offset}"
    cluster.wait_caught_up()
    return found


@pytest.fixture(params=[1280, 390])
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_text(chromium: Browser, places: dict[str, str], name: str, width: int) -> None:
    with tab(chromium, places[name], width=width) as opened:
        page = opened.page
        expect(page.get_by_role("heading", name="Where it lies")).to_be_visible()
        expect(page.get_by_text("Asking the groups")).to_have_count(0)
        for each in ("Text", "JSON", "Hex"):
            page.get_by_role("tab", name=each, exact=True).click()
            expect(page.get_by_role("tab", name=each, exact=True)).to_have_attribute(
                "aria-selected", "true"
            )
        page.get_by_role("tab", name="Text", exact=True).click()
        text = page.locator('[role="tabpanel"]').first.inner_text()
        if name in ("markup", "json"):
            assert BODIES[name].decode() in text
        if name == "not UTF-8":
            expect(page.get_by_text("It is not UTF-8")).to_be_visible()
            assert "<b>bold</b>" in text
        if name == "control":
            assert "\x00" not in text
            assert "\u202e" not in text
        if name == "4 MB":
            expect(page.get_by_text("of 4,000,000 bytes are shown")).to_be_visible()
        for tag in ("script:not([src])", "main img", "main iframe", "main b"):
            assert page.locator(tag).count() == 0, tag
        assert page.evaluate("window.hit") is None
        assert page.evaluate("({}).hit") is None
        assert opened.faults == []
        assert opened.too_wide() <= 0


def test_a_download_has_the_bytes_and_is_no_page(chromium: Browser, places: dict[str, str]) -> None:
    for name in ("markup", "not UTF-8", "4 MB"):
        with tab(chromium, places[name]) as opened:
            with opened.page.expect_download() as waiting:
                opened.page.get_by_role("link", name="Download").click()
            assert waiting.value.path().read_bytes() == BODIES[name]


def test_lists_show_the_names_as_they_are(chromium: Browser, places: dict[str, str]) -> None:
    base = places["markup"].partition("#")[0]
    for address in (
        "#/messages?topic=hostile",
        "#/messages?topic=%3Cscript%3E",
        "#/topics/%3Cb%3E",
    ):
        with tab(chromium, base + address) as opened:
            expect(opened.page.locator("main h1").first).to_be_visible()
            opened.page.wait_for_load_state("networkidle")
            assert opened.page.locator("main b, main script, main img").count() == 0
            assert opened.page.evaluate("window.hit") is None
