"""Services and Store in a browser: what waits is shown and changed, by mouse and by keyboard."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from console.chromium import Tab, tab
from playwright.sync_api import Browser, Page, Route, expect

from helpers.elected import Elected
from tandemlog import Consumer, Message, Producer

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=window.hit=1>"
TURNED, VISIBLE = f"{HOSTILE}\u202e", f"{HOSTILE}⟨U+202E⟩"
"""It would turn around what follows it; as the page shows it."""
LETTERS = 3
DELAYED = 2


@pytest.fixture(scope="module")
def base(cluster: Elected) -> Iterator[str]:
    """The console of a slave: what it shows of the services is the master's word. There are dead
    letters of `billing`, delayed messages, and an open transaction."""
    cluster.wait_all_in_sync()
    cluster.tandemlog("topic", "create", "jobs", "--queues", "1")
    with Producer(cluster.endpoints) as producer:
        for _ in range(LETTERS):
            text = f'{{"text": "{TURNED}"}}'.encode()
            producer.send(Message("jobs", text, properties={"note": TURNED})).result()
        for hours in range(1, DELAYED + 1):
            later = producer.send(Message("jobs", b"later"), delay=timedelta(hours=hours))
            later.result()
        with (
            Consumer(cluster.endpoints, group="billing") as consumer,
            consumer.work("jobs", start="earliest") as work,
        ):
            for number, delivery in enumerate(work.deliveries(), start=1):
                delivery.reject(ValueError(HOSTILE), sync=True)
                if number == LETTERS:
                    break
        producer.transaction(Message("jobs", b"half")).__enter__()
        master = cluster.the_master()
        slave = next(node for node in cluster.nodes if node is not master)
        yield f"{slave.http}/console/"


def clean(opened: Tab) -> None:
    assert opened.axe() == []
    assert opened.faults == []
    assert opened.too_wide() <= 0
    assert opened.page.evaluate("window.hit") is None


def done(page: Page, text: str) -> None:
    expect(page.locator("#said")).to_contain_text(text)


def test_all_letters_are_sent_in_parts_up_to_the_end_that_was_shown(
    chromium: Browser, base: str
) -> None:
    answers = [
        (200, {"sent": 2, "refused": [], "next": 2}),
        (503, {"error": "no answer", "kind": "UnavailableError"}),
    ]
    asked: list[Any] = []

    def answer(route: Route) -> None:
        asked.append(route.request.post_data_json)
        status, body = answers[len(asked) - 1]
        route.fulfill(status=status, json=body)

    with tab(chromium, f"{base}#/services/dead-letters/billing") as opened:
        page = opened.page
        page.route("**/resend", answer)
        page.get_by_role("button", name="Resend all").click()
        page.get_by_role("dialog").get_by_role("button", name="Resend all").click()
        done(page, "2 dead letters were sent again. Those after them: It is not known whether")
        part = {"before": LETTERS, "confirm": "billing"}
        assert asked == [{"first": 0, **part}, {"first": 2, **part}]


def test_dead_letters_are_read_sent_again_and_forgotten(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/services/dead-letters") as opened:
        page = opened.page
        page.get_by_role("link", name="billing", exact=True).click()
        expect(page.locator("tbody tr")).to_have_count(LETTERS)
        expect(page.locator("tbody tr").first).to_contain_text(HOSTILE)
        expect(page.get_by_role("link", name="jobs 0 at 1")).to_have_attribute(
            "href", "#/messages/jobs/0/1"
        )
        clean(opened)
        page.get_by_role("link", name="1", exact=True).click()
        expect(page.locator("pre")).to_have_text(f'{{"text": "{VISIBLE}"}}')
        properties = page.get_by_role("table", name="Properties")
        expect(properties).to_contain_text(f"note{VISIBLE}")
        clean(opened)
        # by keyboard alone: the button, and the one of the dialog
        page.get_by_role("button", name="Resend").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.get_by_role("dialog").get_by_role("button", name="Resend").focus()
        page.keyboard.press("Enter")
        done(page, "Dead letter 1 was sent again.")
        expect(page.locator("tbody tr")).to_have_count(LETTERS - 1)
        page.get_by_role("button", name="Purge all").click()
        confirm = page.get_by_role("dialog").get_by_role("button", name="Purge")
        expect(confirm).to_be_disabled()
        page.get_by_label("Type billing to confirm").fill("Billing")
        expect(confirm).to_be_disabled()
        page.get_by_label("Type billing to confirm").fill("billing")
        assert opened.axe() == []
        with page.expect_request("**/purge") as asked:
            confirm.click()
        assert asked.value.post_data_json == {"before": LETTERS, "confirm": "billing"}
        done(page, f"{LETTERS - 1} dead letters of billing are forgotten.")
        expect(page.get_by_text("There are none.")).to_be_visible()
        clean(opened)


def test_who_deletes_a_topic_is_told_that_a_work_queue_reads_it(
    chromium: Browser, base: str
) -> None:
    with tab(chromium, f"{base}#/topics/jobs") as opened:
        page = opened.page
        expect(page.get_by_role("link", name="billing")).to_be_visible()
        page.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("dialog")).to_contain_text("work on it: 1.")
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.get_by_role("link", name="billing").click()
        page.get_by_role("link", name="Leases").click()
        expect(page.get_by_role("heading", name="Work of billing")).to_be_visible()
        clean(opened)


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (0, "", "It is not known whether this was done: look before you repeat it."),
        (500, "InternalError", "It is not known whether this was done"),
        (503, "TimeoutError", "It is not known whether this was done"),
        (409, "OutcomeUnknownError", "It is not known whether this was done"),
        (409, "RefusedError", "Not done: a reason"),
        (429, "BusyError", "Not done: a reason"),
    ],
)
def test_only_a_change_that_was_refused_is_called_not_done(
    chromium: Browser, base: str, status: int, kind: str, text: str
) -> None:
    """Status 0: the connection is lost."""

    def answer(route: Route) -> None:
        if status:
            route.fulfill(status=status, json={"error": "a reason", "kind": kind})
        else:
            route.abort()

    with tab(chromium, f"{base}#/services/delayed") as opened:
        page = opened.page
        page.route("**/recall", answer)
        page.get_by_role("button", name="Recall").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Recall").click()
        done(page, text)


def test_a_delayed_message_is_called_back(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/services/delayed", width=390, scheme="dark") as opened:
        page = opened.page
        expect(page.get_by_role("heading", name="2 messages wait")).to_be_visible()
        clean(opened)
        page.get_by_role("button", name="Recall").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Recall").click()
        done(page, "The message was called back.")
        expect(page.get_by_role("heading", name="1 message waits")).to_be_visible()


def test_a_transaction_is_rolled_back(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/services/transactions") as opened:
        page = opened.page
        expect(page.get_by_role("heading", name="1 open transaction")).to_be_visible()
        clean(opened)
        page.get_by_role("button", name="Roll back").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill(dialog.locator("strong").inner_text())
        dialog.get_by_role("button", name="Roll back").click()
        done(page, "is rolled back.")
        expect(page.get_by_text("Every transaction has ended.")).to_be_visible()


@pytest.mark.parametrize("path", ["services/leases", "services/leases/billing"])
def test_leases_are_drawn(chromium: Browser, base: str, path: str) -> None:
    with tab(chromium, f"{base}#/{path}", width=390) as opened:
        expect(opened.page.get_by_text("Oldest unacked").first).to_be_visible()
        clean(opened)


def test_the_store_shows_its_positions_and_is_scrubbed(chromium: Browser, base: str) -> None:
    with tab(chromium, f"{base}#/store") as opened:
        page = opened.page
        picture = page.locator("svg.timeline")
        expect(picture).to_have_attribute("aria-label", re.compile("Wrote .*; Reputed "))
        expect(picture.locator("rect")).to_have_count(5)
        clean(opened)
        page.get_by_role("button", name="Begin a round").click()
        page.get_by_role("dialog").get_by_role("button", name="Begin a round").click()
        done(page, "begins.")
        page.get_by_role("link", name="Index files").click()
        expect(page.get_by_role("table", name="Index files, the newest first")).to_be_visible()
        clean(opened)
