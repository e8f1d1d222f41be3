"""Every lesson in docs/decisions/0031 names a test that exists, or says why none can."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "decisions" / "0031-lessons-of-others.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PATRONI = (
    "308", "713", "1379", "659", "837", "1684", "2070", "2779", "2379", "3403", "3572", "3407",
    "2803", "3318", "3662", "2188", "1701", "1759",
)  # fmt: skip
ROCKETMQ = ("6662", "4771", "7689", "7219")


def rows() -> list[tuple[str, str]]:
    """What happened, and where it is tested, of each row of both tables."""
    cells = [line.strip("|").split("|") for line in PAGE.read_text().splitlines()]
    found = [(row[0].strip(), row[-1].strip()) for row in cells if len(row) == 3]
    return [row for row in found if set(row[0]) != {"-"} and row[1] != "test"]


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize(("lesson", "cell"), rows(), ids=lambda text: text[:40])
def test_a_lesson_has_its_test(lesson: str, cell: str) -> None:
    named = NAMED.findall(cell)
    assert named or cell.startswith("none: "), f"{lesson}: name a test, or say why there is none"
    for path, name in named:
        assert (ROOT / path).exists(), f"{lesson}: there is no {path}"
        assert name in functions_of(ROOT / path), f"{lesson}: {path} has no {name}"


def test_no_lesson_is_missing() -> None:
    text = " ".join(lesson for lesson, _ in rows())
    missing = [number for number in (*PATRONI, *ROCKETMQ) if not re.search(rf"\b{number}\b", text)]
    assert not missing
    assert len(rows()) == 13 + 11
