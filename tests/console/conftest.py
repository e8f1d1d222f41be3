"""A headless Chromium, and a cluster of three with consoles.

Both are of a module: Playwright's loop runs while its fixture lives, and a module with tests of
asyncio could not have one beside it.
"""

from collections.abc import Iterator

import pytest
from console.chromium import launched
from playwright.sync_api import Browser

from helpers.elected import Elected


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elected]:
    """Every node serves a console with writes."""
    cluster = Elected(tmp_path_factory.mktemp("consoles"))
    for node in cluster.nodes:
        node.settings["console"] = {"enabled": True, "writes": True}
        node.settings["store"]["commit_log_file_size"] = 1 << 24
    with cluster:
        cluster.wait_all_in_sync()
        yield cluster
