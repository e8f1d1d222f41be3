"""docs/api.md is what the docstrings give, and has every public name."""

import tandemlog
from documents.pages import DOCS, anchors
from scripts.api_docs import api_markdown, error_classes

PAGE = DOCS / "api.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == api_markdown(), "run `make docs`"


def test_every_public_name_is_there() -> None:
    found = anchors(PAGE)
    text = PAGE.read_text(encoding="utf-8")
    for name in tandemlog.__all__:
        value = getattr(tandemlog, name)
        if name != "errors" and f"- `{name}` = `{value!r}`" not in text:
            assert name.lower() in found, name
    for error in error_classes():
        assert error.__name__.lower() in found, error.__name__
        assert error.__doc__, f"{error.__name__} has no docstring"
