"""By keyboard alone: find a message by its key, see its life, resend a dead letter, reset a group
with a dry run, switch the master."""

import pytest
from console.chromium import tab
from playwright.sync_api import Browser, Page, expect

import tandemlog
from helpers.elected import Elected
from tandemlog import Message, Producer

pytestmark = pytest.mark.browser

MOST_KEYS = 150
FOCUSED = """() => {
  const each = document.activeElement;
  const label = each.labels?.length ? each.labels[0].innerText : "";
  return [each.getAttribute("aria-label"), label, each.innerText, each.value]
    .filter(Boolean).map((text) => text.trim());
}"""


def to(page: Page, *names: str) -> None:
    """Press Tab until what has the focus has one of these names, and can be seen to have it."""
    for _ in range(MOST_KEYS):
        page.keyboard.press("Tab")
        if set(page.evaluate(FOCUSED)) & set(names):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", names
            return
    raise AssertionError(f"no key leads to {names}")


def press(page: Page, *names: str) -> None:
    to(page, *names)
    page.keyboard.press("Enter")


@pytest.fixture(scope="module")
def base(cluster: Elected) -> str:
    """Messages with keys; a group that has committed an offset, and one that rejected a message."""
    cluster.tandemlog("topic", "create", "orders", "--queues", "2")
    with Producer(cluster.endpoints) as producer:
        for number in range(5):
            producer.send(Message("orders", b"%d" % number, keys=f"order-{number}")).result()
    cluster.wait_caught_up()
    with tandemlog.Consumer(cluster.endpoints, group="billing") as consumer:
        consumer.commit({("orders", 0): 0, ("orders", 1): 0})
    with (
        tandemlog.Consumer(cluster.endpoints) as consumer,
        consumer.work("orders", group="printers") as work,
    ):
        for delivery in work.deliveries(timeout_ms=30_000):
            if "order-3" in delivery.message.keys:
                delivery.reject("out of paper", sync=True)
                break
            delivery.ack(sync=True)
    return f"{cluster.nodes[0].http}/console/"


def done(page: Page, text: str) -> None:
    """What came of a change is told in the corner."""
    expect(page.locator("#said")).to_contain_text(text)


def test_the_walk(chromium: Browser, cluster: Elected, base: str) -> None:
    with tab(chromium, base) as opened:
        page, heading = opened.page, opened.page.locator("main h1").first
        expect(heading).to_have_text("Cluster")

        press(page, "Messages")
        expect(heading).to_have_text("Messages")
        to(page, "Topic")
        page.keyboard.type("orders")
        to(page, "Show")
        page.keyboard.type("with a key")
        to(page, "Key")
        page.keyboard.type("order-3")
        page.keyboard.press("Enter")
        row = page.locator("main tbody tr").first
        expect(row).to_contain_text("order-3")
        press(page, row.locator("a").first.inner_text())
        expect(page.get_by_role("heading", name="Its life")).to_be_visible()
        expect(page.locator("main")).to_contain_text("printers")
        expect(page.locator("main")).to_contain_text("out of paper")

        press(page, "Services")
        expect(heading).to_contain_text("Services")
        press(page, "Dead letters")
        press(page, "printers")
        press(page, "Resend")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        press(page, "Resend")
        press(page, "Resend")
        done(page, "again")

        press(page, "Groups")
        press(page, "billing")
        expect(heading).to_contain_text("billing")
        press(page, "Show what would change")
        expect(page.get_by_role("heading", name="What would change")).to_be_visible()
        press(page, "Reset the offsets")
        press(page, "Reset")
        done(page, "Done")

        press(page, "Cluster")
        before = cluster.the_master().node_id
        press(page, "Make master")
        press(page, "Switch the master")
        done(page, "Asked for")
        expect(page.locator(".panel .big").first).not_to_have_text(before, timeout=30_000)
        assert opened.faults == []
    with tandemlog.Admin(cluster.endpoints) as admin:
        assert sum(each.messages for each in admin.lag("billing")) == 0
        assert sum(each.max_offset for each in admin.ranges("orders")) == 6
