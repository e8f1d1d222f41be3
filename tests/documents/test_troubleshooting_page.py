"""docs/troubleshooting.md has every public error, and the texts on it are those of the program."""

import ast
import functools
import re
from collections.abc import Iterator

from documents.pages import DOCS
from helpers.running import ROOT
from scripts.api_docs import error_classes

PAGE = DOCS / "troubleshooting.md"
PRODUCT = ("tandemlog", "storage", "ha", "rocketmq", "node", "cli")
HOLE = "\0"


def section(title: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def first_cells(text: str) -> list[str]:
    """What is in backticks in the first cell of each row."""
    rows = re.findall(r"^\| (.*?) (?<!\\)\|", text, re.MULTILINE)
    return [found for row in rows for found in re.findall(r"`([^`]+)`", row)]


@functools.cache
def texts() -> str:
    """All string literals of the program; what an f-string fills in is a hole."""
    return "\n".join(
        literal
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
        if not {"v1", "rocketmq_v2"}.intersection(path.parts)
        for literal in _literals(ast.parse(path.read_text(encoding="utf-8")))
    )


def _literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else HOLE for each in node.values)
            yield "".join(map(str, parts))


def test_every_error_is_there_once() -> None:
    named = first_cells(section("Errors of the Python client"))
    wanted = {error.__name__ for error in error_classes()} - {"TandemlogError"}
    assert wanted - set(named) == set()
    assert set(named) - wanted == set()
    assert len(named) == len(set(named))


def test_the_texts_are_those_of_the_program() -> None:
    shown = first_cells(section("Texts") + section("Alarms"))
    assert len(shown) > 30
    lost = [text for text in shown if not all(part.strip() in texts() for part in text.split("…"))]
    assert not lost, f"the program says none of these (any more): {lost}"
