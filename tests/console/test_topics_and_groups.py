"""Topics and groups in a browser: their own pages, changes by keyboard alone, a reset after its dry
run, names from a hostile address."""

import re
from urllib.parse import quote

import pytest
from console.chromium import tab
from playwright.sync_api import Browser, Page, expect

from helpers.elected import Elected
from tandemlog import Admin, Message, Producer

pytestmark = pytest.mark.browser

TOPIC, GROUP = "orders-of-the-shop", "billing"
MESSAGES, READ = 40, 3


@pytest.fixture(scope="module")
def base(cluster: Elected) -> str:
    """The console of a master, whose group has read some of each of four queues."""
    cluster.tandemlog("topic", "create", TOPIC, "--queues", "4")
    with Producer(cluster.endpoints) as producer:
        producer.send_many(
            None, [Message(TOPIC, b"x", queue_id=each % 4) for each in range(MESSAGES)]
        )
    with Admin(cluster.endpoints) as admin:
        admin.commit(GROUP, {(TOPIC, each): READ for each in range(4)})
    return f"{cluster.the_master().http}/console/"


def press_on(page: Page, name: str) -> None:
    """Go there with Tab, and press Enter."""
    for _ in range(100):
        page.keyboard.press("Tab")
        focused = page.locator("button:focus, summary:focus")
        if focused.count() and focused.inner_text().strip() == name:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"Tab does not lead to {name!r}")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("path", [f"topics/{TOPIC}", f"groups/{GROUP}"])
def test_their_own_pages_are_drawn_for_all(
    chromium: Browser, base: str, path: str, width: int, scheme: str
) -> None:
    with tab(chromium, f"{base}#/{path}", width=width, scheme=scheme) as opened:
        expect(opened.page.get_by_role("heading", level=1)).to_have_text(path.partition("/")[2])
        expect(opened.page.locator("tbody tr").first).to_be_visible()
        expect(opened.page.get_by_role("button", name=re.compile("^Delete"))).to_be_visible()
        assert opened.axe() == []
        assert opened.too_wide() <= 0
        assert opened.faults == []


def test_a_topic_is_made_and_deleted_by_keyboard_alone(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/topics") as opened:
        page = opened.page
        expect(page.get_by_role("link", name=TOPIC)).to_be_visible()
        press_on(page, "Create a topic")
        page.keyboard.press("Tab")
        page.keyboard.type("by-keyboard")
        press_on(page, "Create")
        expect(page.get_by_role("dialog")).to_contain_text("Create the topic by-keyboard?")
        assert opened.axe() == []
        press_on(page, "Create")
        expect(page.get_by_role("heading", level=1)).to_have_text("by-keyboard")
        expect(page.locator("#said")).to_contain_text("by-keyboard was created")
        expect(page.get_by_role("button", name="Delete")).to_be_visible()
        press_on(page, "Delete")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
        dialog.get_by_role("textbox").focus()
        page.keyboard.type("by-keyboard")
        press_on(page, "Delete")
        expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
        expect(page.locator("#said")).to_contain_text("by-keyboard was deleted")
        expect(page.get_by_role("link", name=TOPIC)).to_be_visible()
        expect(page.get_by_role("link", name="by-keyboard")).to_have_count(0)
        assert opened.faults == []


def test_a_group_is_reset_after_its_dry_run(chromium: Browser, cluster: Elected, base: str) -> None:
    with tab(chromium, f"{base}#/groups/{GROUP}") as opened, Admin(cluster.endpoints) as admin:
        page = opened.page
        waits = MESSAGES - 4 * READ
        expect(page.locator(".panel .big").first).to_have_text(str(waits))
        page.get_by_role("button", name="Show what would change").click()
        section = page.get_by_role("region", name="Reset offsets")
        expect(section).to_contain_text(f"4 of 4 queues move: {waits} messages are skipped.")
        expect(section.locator("tbody tr")).to_have_count(4)
        assert set(admin.committed(GROUP).values()) == {READ}
        assert opened.axe() == []
        section.get_by_role("button", name="Reset the offsets").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert set(admin.committed(GROUP).values()) == {READ}
        section.get_by_role("button", name="Reset the offsets").click()
        page.get_by_role("dialog").get_by_role("button", name="Reset").click()
        expect(section).to_contain_text("Done")
        assert set(admin.committed(GROUP).values()) == {MESSAGES // 4}
        expect(page.locator(".panel .big").first).to_have_text("0")
        section.get_by_label("Continue at").select_option("earliest")
        expect(section).not_to_contain_text("Done")
        assert opened.faults == []


def test_lists_are_filtered_by_address_and_by_form(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/topics?text=none-of-this") as opened:
        page = opened.page
        expect(page.locator("main")).to_contain_text("No topic has this in its name.")
        page.get_by_label("Name contains").fill("SHOP")
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert page.url.endswith("#/topics?text=SHOP")
        page.go_back()
        expect(page.get_by_label("Name contains")).to_have_value("none-of-this")
        assert opened.faults == []


@pytest.mark.parametrize("page_name", ["topics", "groups"])
@pytest.mark.parametrize(
    "name", ["<img src=x onerror=alert(1)>", "../../metrics", "a/b?c#d", "%25"]
)
def test_a_name_from_a_hostile_address_is_text(
    chromium: Browser, base: str, page_name: str, name: str
) -> None:
    with tab(chromium, "about:blank") as opened:
        page = opened.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: opened.faults.append(f"dialog: {dialog.message}"))
        page.goto(base)
        go_to = "path => (location.hash = path)"
        page.evaluate(go_to, f"#/{page_name}/{quote(name, safe='')}")
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page.locator("main [role=alert]")).not_to_be_empty()
        assert page.locator("main img").count() == 0
        assert all(each.startswith(base) for each in asked)
        # the browser notes the refusal itself
        assert [each for each in opened.faults if "status of 40" not in each] == []
