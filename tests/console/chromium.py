"""The Chromium of this machine, and what each page must be free of."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
expect.set_options(timeout=30_000)  # milliseconds: other tests keep the machine busy
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # a container's root has no sandbox to give
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page, and what it complained of: its own errors, and requests to any other host."""

    page: Page
    faults: list[str] = field(default_factory=list)
    bytes: int = 0

    def axe(self) -> list[str]:
        """What the rules of axe-core find, one line for each element."""
        self.page.evaluate(AXE)
        found: Any = self.page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        return [
            f"{each['id']}: {node['html']} {node.get('failureSummary', '')}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def too_wide(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )


@contextmanager
def tab(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    scheme: str = "light",
    zone: str | None = None,
) -> Iterator[Tab]:
    """`url` in a window of its own, once the page is drawn; `zone` as "Asia/Tokyo"."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        ignore_https_errors=True,
        timezone_id=zone,
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    opened = Tab(page)
    page.on("pageerror", lambda error: opened.faults.append(f"error: {error}"))
    page.on(
        "console",
        lambda message: opened.faults.append(message.text) if message.type == "error" else None,
    )
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("http://127.0.0.1:", "https://127.0.0.1:", "blob:", "data:"))
            else opened.faults.append(f"asked another host: {request.url}")
        ),
    )
    try:
        page.goto(url)
        yield opened
    finally:
        context.close()
