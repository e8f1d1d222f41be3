"""Every page can be found from the README, and no link leads nowhere."""

from pathlib import Path

import pytest

from documents.pages import DOCS, README, anchors, links
from helpers.running import ROOT

PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
ELSEWHERE = ("http://", "https://", "mailto:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_broken(page: Path) -> None:
    broken = []
    for link in links(page):
        if link.startswith(ELSEWHERE):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(f"{link}: there is no such file")
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            broken.append(f"{link}: there is no such heading")
    assert not broken, "\n".join(broken)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, open_pages = {README}, [README]
    while open_pages:
        page = open_pages.pop()
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                open_pages.append(target)
    lost = sorted(str(page.relative_to(ROOT)) for page in set(PAGES) - reached)
    assert not lost, f"no page links to {lost}"


def test_the_index_names_every_page() -> None:
    index = DOCS / "README.md"
    named = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    missing = {page for page in DOCS.glob("*.md") if page != index} - named
    assert not missing, f"docs/README.md does not name {sorted(each.name for each in missing)}"
