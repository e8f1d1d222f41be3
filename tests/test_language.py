"""Plain English: phrases of a private dialect do not come back.

Each of them was once in a message, in --help, in a document or in a docstring, and a reader had to
guess what it meant. Write what an engineer would say to a colleague; docs/glossary.md has the
words.
The list is a ratchet: it grows when a phrase has gone from the whole tree.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("storage", "ha", "rocketmq", "node", "cli", "tandemlog")

# phrase: what to write instead
AVOID = {
    "for good": "permanently",
    "of late": "recently",
    "be content": "wait only until",
    "the answer ends": "returns the function that removes",
    "put to the master": "send puts to the master",
    "make COUNT messages up": "send COUNT generated messages",
    "answers where": "returns where",
    "answers how many": "returns how many",
    "another life": "stale, or an earlier use of the file",
    "anew": "again",
    "go on with it": "continue with it",
    "nobody holds any more": "no longer used",
    "made again": "rebuilt, or created again",
    "passed over": "skipped",
    "passes over": "skips",
    "goes on": "continues",
    "gone on": "continued",
    "went on": "continued",
    "go on": "continue",
    "held against": "compared with, or checked against",
    "for as long as": "while",
    "whoever": "the one who acts: the caller, the reader, each node",
    "handed out": "delivered, or returned",
    "hands out": "delivers, or returns",
    "says so": "reports it, or logs it",
    "the answer is": "returns",
    "hand out": "deliver, or return",
    "by rule": "name the rule",
    "older life": "an earlier use of the file",
    "under the loupe": "examined",
    "nobody": "no client, no node, no thread: the one that is meant",
    "somebody": "a client, a node, an operator: the one that is meant",
    "everybody": "all nodes, all waiters: those that are meant",
    "anybody": "any thread, any caller: the one that is meant",
    "turned bit": "flipped bit",
}


def texts() -> list[Path]:
    code = [path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))]
    code += sorted(ROOT.glob("pyspark_tandemlog*.py"))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [*code, *pages]


def test_nobody_has_to_guess_what_a_phrase_means() -> None:
    wrong = []
    for path in texts():
        text = path.read_text(encoding="utf-8")
        for phrase, better in AVOID.items():
            pattern = r"\b" + phrase.replace(" ", r"\s+") + r"\b"
            for found in re.finditer(pattern, text, re.IGNORECASE):
                line = text.count("\n", 0, found.start()) + 1
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {phrase!r}: write {better!r}")
    assert not wrong, "\n".join(wrong)
