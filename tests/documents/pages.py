"""The pages that readers see, what they contain, and the anchors of their headings.

page ──▶ links      [text](target#anchor), without those of code blocks
     ──▶ anchors    as GitHub makes them of headings: lower case, no punctuation, - for spaces
     ──▶ steps      commands of console blocks with their output, and `<!-- test: … -->`
     ──▶ examples   the Python blocks
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from helpers.running import ROOT

DOCS = ROOT / "docs"
README = ROOT / "README.md"
WILDCARD = "…"

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- test: (.*) -->")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_PROGRAM = re.compile(r"# (\w+\.py)")
_CODE = "    # exit code "


def prose(page: Path) -> str:
    """The text without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """The targets of its links, as they stand there."""
    return _LINK.findall(re.sub(r"`[^`\n]*`", "``", prose(page)))


def anchors(page: Path) -> set[str]:
    """Those of its headings; a repeated heading gets -1, -2 … as on GitHub."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def examples(page: Path) -> list[str]:
    """Its Python blocks."""
    return re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@dataclass(slots=True)
class Step:
    """A command, how it ends, and the lines that the page shows of its output; or a `program` to
    save and its lines; or what the test is told to do there."""

    command: str = ""
    directive: str = ""
    program: str = ""
    exit_code: int = 0
    output: list[str] = field(default_factory=list)


def steps(page: Path) -> list[Step]:
    """The steps of a page in its order. A Python block whose first line is `# NAME.py` is a
    program."""
    found: list[Step] = []
    language = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            language = line.removeprefix("```")
        elif language == "console" and line.startswith("$ "):
            command, _, code = line.removeprefix("$ ").partition(_CODE)
            found.append(Step(command, exit_code=int(code or 0)))
        elif language == "python" and (name := _PROGRAM.fullmatch(line)):
            found.append(Step(program=name[1]))
        elif language == "console" or (language == "python" and found and found[-1].program):
            found[-1].output.append(line)
        elif comment := _COMMENT.fullmatch(line):
            found.append(Step(directive=comment[1]))
    return found


def fits(shown: str, line: str) -> bool:
    """Whether a line of output is the one that a page shows, where … stands for any text."""
    pattern = ".*".join(map(re.escape, map(str.rstrip, shown.split(WILDCARD))))
    return re.fullmatch(pattern + r"\s*", line.rstrip()) is not None


def assert_shows(step: Step, printed: str) -> None:
    """Every shown line is in the output, in this order; a line … stands for any lines."""
    lines = iter(printed.splitlines())
    for shown in step.output:
        if shown.strip() in ("", WILDCARD):
            continue
        if not any(fits(shown, line) for line in lines):
            raise AssertionError(f"$ {step.command}\nprinted no {shown!r}, but:\n{printed}")
