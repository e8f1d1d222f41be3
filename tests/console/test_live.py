"""The cluster page follows a failover by itself, and says when its own node is gone."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from console.chromium import tab
from playwright.sync_api import Browser, expect

from helpers.elected import Elected
from helpers.running import NodeProcess

pytestmark = pytest.mark.browser


@contextmanager
def gone(cluster: Elected, node: NodeProcess) -> Iterator[None]:
    """It is killed, and is back afterwards, whatever the test found."""
    node.kill()
    try:
        yield
    finally:
        node.start()
        cluster.wait_all_in_sync()


def test_a_failover_is_followed_without_a_reload(chromium: Browser, cluster: Elected) -> None:
    cluster.wait_all_in_sync()
    master = cluster.the_master()
    at = next(node for node in cluster.nodes if node is not master)
    with tab(chromium, f"{at.http}/console/") as opened:
        page = opened.page
        badge = page.locator("tbody tr", has_text=f"{at.node_id}").first
        expect(badge).to_be_visible()
        expect(page.locator(".panel .big").first).to_have_text(master.node_id)
        page.evaluate("window.mark = 'the same page'")
        with gone(cluster, master):
            after = cluster.wait_master(other_than=master)
            expect(page.locator(".panel .big").first).to_have_text(after.node_id)
            terms = page.get_by_role("table", name="Terms, the newest first")
            expect(terms.locator("tbody tr").first).to_contain_text(after.node_id)
            assert page.evaluate("window.mark") == "the same page"
            assert opened.axe() == []


def test_a_node_that_is_gone_names_the_others(chromium: Browser, cluster: Elected) -> None:
    cluster.wait_all_in_sync()
    at, *others = cluster.nodes
    with tab(chromium, f"{at.http}/console/") as opened:
        page = opened.page
        expect(page.locator("tbody tr").first).to_be_visible()
        banner = page.locator("#connection")
        with gone(cluster, at):
            expect(banner).to_contain_text(f"Node {at.node_id} has not answered since")
            for node in others:
                link = banner.get_by_role("link", name=node.node_id)
                expect(link).to_have_attribute("href", f"{node.http}/console/")
            assert opened.axe() == []
        expect(banner).to_be_empty(timeout=60_000)


def test_plots_that_are_not_renewed_are_named(chromium: Browser, cluster: Elected) -> None:
    with tab(chromium, f"{cluster.nodes[0].http}/console/") as opened:
        page = opened.page
        expect(page.get_by_role("heading", name="Traffic of")).to_be_visible()
        older = page.get_by_text("and not newer")
        page.route("**/api/cluster/rates**", lambda route: route.abort())
        expect(older).to_be_visible()
        assert opened.axe() == []
        page.unroute("**/api/cluster/rates**")
        expect(older).not_to_be_visible()


def test_a_lost_master_is_not_shown_as_in_sync(chromium: Browser, cluster: Elected) -> None:
    """With two of three gone the third one elects nobody, and does not hear its master."""
    cluster.wait_all_in_sync()
    master = cluster.the_master()
    at, other = (node for node in cluster.nodes if node is not master)
    with tab(chromium, f"{at.http}/console/") as opened:
        page = opened.page
        expect(page.locator(".panel .big").first).to_have_text(master.node_id)
        nodes = page.get_by_role("table", name="Nodes of the cluster")
        # together: one alone would be followed by an election
        other.kill()
        with gone(cluster, master):
            try:
                big = page.locator(".panel .big")
                expect(big.first).to_have_text("none", timeout=30_000)
                expect(big.nth(1)).to_have_text("not known")
                expect(nodes.locator(".badge.good")).to_have_count(0)
                row = nodes.locator("tbody tr").filter(
                    has=page.get_by_role("rowheader", name=master.node_id)
                )
                expect(row).to_contain_text("unreachable")
                assert opened.axe() == []
            finally:
                other.start()
