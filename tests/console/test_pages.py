"""Each page of a real cluster in a browser: drawn, accessible, narrow and wide, light and dark."""

import re

import pytest
from console.chromium import tab
from playwright.sync_api import Browser, expect

from helpers.elected import Elected
from tandemlog import Message, Producer
from tandemlog_server.node.console.answers import Assets

pytestmark = pytest.mark.browser

MAX_ASSET_BYTES = 300_000


@pytest.fixture(scope="module")
def base(cluster: Elected) -> str:
    """The console of a node of a cluster that holds some messages."""
    cluster.tandemlog("topic", "create", "orders", "--queues", "4")
    with Producer(cluster.endpoints) as producer:
        producer.send(Message("orders", b"first", keys="k-1")).result()
    return f"{cluster.nodes[0].http}/console/"


def pages() -> list[str]:
    """Those of app.js."""
    script = (Assets.folder() / "app.js").read_text(encoding="utf-8")
    found = re.findall(r"^  (\w+): \{ title:", script, re.MULTILINE)
    assert "cluster" in found
    return found


@pytest.mark.parametrize("name", pages())
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_page_is_drawn_for_all(
    chromium: Browser, base: str, name: str, width: int, scheme: str
) -> None:
    with tab(chromium, f"{base}#/{name}", width=width, scheme=scheme) as opened:
        page = opened.page
        expect(page.locator("main h1").first).to_be_visible()
        page.wait_for_load_state("networkidle") if name != "cluster" else page.wait_for_timeout(500)
        expect(page.locator('nav a[aria-current="page"]')).to_have_count(1)
        assert page.title().split(" · ")[0].lower() == name
        assert opened.faults == []
        assert opened.axe() == []
        assert opened.too_wide() <= 0


def test_a_stranger_of_the_page_has_nothing_to_load_elsewhere() -> None:
    assert sum(Assets().sizes().values()) <= MAX_ASSET_BYTES
    for each in Assets.folder().iterdir():
        if each.name.endswith((".js", ".html", ".css")):
            text = each.read_text(encoding="utf-8")
            assert "innerHTML" not in text, each.name
            assert "style=" not in text, each.name
            addresses = set(re.findall(r"https?://[^\"'`\s]*", text))
            assert addresses <= {"http://www.w3.org/2000/svg"}, each.name
