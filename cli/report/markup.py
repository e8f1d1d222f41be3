"""Elements of a page. What comes from data is a text or the value of an attribute, never markup.

A page is a tree of the standard library's ElementTree, which escapes texts and values when it
writes them: no template has to remember it. `plain` makes visible what a browser would obey or
hide: control characters, marks of direction, and bytes that were not UTF-8 (surrogates here). A
report is sent on, so a URL in it, as that of an archive, has neither password nor query.
"""

import re
from typing import Final
from xml.etree.ElementTree import Element, tostring

from tandemlog.archive.object_store import shown_url
from tandemlog.format.words import visible

Content = Element | str | None

MOST_LETTERS: Final = 300
"""Of a text from data."""
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_DOCTYPE: Final = "<!DOCTYPE html>\n"


def element(tag: str, *content: Content, **attributes: str | float | None) -> Element:
    """`class_` is the attribute class, and `aria_label` is aria-label. None is left out."""
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), plain(str(value)))
    for each in content:
        if isinstance(each, Element):
            made.append(each)
        elif each is not None and len(made):
            made[-1].tail = (made[-1].tail or "") + plain(each)
        elif each is not None:
            made.text = (made.text or "") + plain(each)
    return made


def plain(text: str) -> str:
    """The text as a page can show it."""
    text = _URL.sub(lambda found: shown_url(found[0]), text)
    return visible(text).encode("utf-8", "backslashreplace").decode("utf-8")


def short(text: str, limit: int = MOST_LETTERS) -> str:
    """As `plain`, of a long text without its middle: names differ at their ends as often as at
    their begins."""
    text = plain(text)
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[len(text) - (limit - 1 - half) :]}"


def html_text(root: Element) -> str:
    """The page; `root` is its element html."""
    return _DOCTYPE + tostring(root, encoding="unicode", method="html") + "\n"
