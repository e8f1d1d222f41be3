"""Two sections of docs/from-rocketmq.md, from the lists that the interop tests run by.

    PYTHONPATH=.:tests python -m interop.client_tables        writes them into the page (make docs)

what works      scenarios.py, other_clients.py and messaging_scenarios.py: a column for each client
                and version
what differs    meant_differences.py

and docs/rocketmq-integration-tests.md, from integration_outcomes.py.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from interop.integration_outcomes import page
from interop.meant_differences import MEANT
from interop.messaging_clients import JAVA_CLIENT, NODE_VERSION, PYTHON_VERSION
from interop.messaging_scenarios import OF_NODE, SCENES
from interop.other_clients import CPP, GO
from interop.scenarios import ONLY_5, SCENARIOS, VERSIONS, scenarios

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "from-rocketmq.md"
TESTS_PAGE: Final = DOCS / "rocketmq-integration-tests.md"

TITLES: Final[Mapping[str, str]] = {
    "sync": "synchronous sends",
    "async": "asynchronous sends",
    "oneway": "oneway sends",
    "batch": "batches",
    "selector": "sends to a queue that a selector chooses",
    "bodies": "bodies of 3 MB, compressed bodies",
    "auto-created": "topics that a send creates",
    "refused": "sends that are refused, with the same codes",
    "pull": "pulls by offset, by tag, by SQL92",
    "lite-pull": "lite pull consumers",
    "shared": "push consumers that share queues",
    "resumed": "push consumers that leave and resume",
    "filtered": "push consumers with tags and SQL92",
    "begins": "where a new group begins",
    "broadcast": "broadcasting",
    "retried": "retries (RECONSUME_LATER)",
    "dead": "dead letters",
    "orderly": "order with locks",
    "delayed": "delay levels",
    "timed": "timers and recall",
    "transactions": "transactions with checks",
    "requests": "request and reply",
    "popped": "POP: push consumers that share messages",
    "pop-retried": "POP: retries",
    "pop-filtered": "POP: tags",
    "pop-orderly": "POP: order",
    "pop-direct": "POP: single requests: pop, acknowledge, extend",
    "pop-assigned": "queues that the broker deals out",
    "queries": "queries by key and by id",
    "times": "search by time",
    "topics": "topics by the admin client",
    "groups": "groups and offsets by the admin client",
}
OTHERS: Final[Mapping[str, Mapping[str, object]]] = {
    "Go 2.1.2": GO,
    "C++ 0.4.4": CPP,
    f"5.x API: Java {JAVA_CLIENT}": SCENES,
    f"5.x API: Python {PYTHON_VERSION}": SCENES,
    f"5.x API: Node.js {NODE_VERSION}": OF_NODE,
}


def works() -> Iterator[str]:
    """The table."""
    java = [f"Java {version}" for version in VERSIONS]
    yield f"| | {' | '.join([*java, *OTHERS])} |"
    yield "|---|" + "---|" * (len(java) + len(OTHERS))
    for scenario in sorted(SCENARIOS, key=list(TITLES).index):
        cells = ["yes" if scenario in scenarios(version) else "" for version in VERSIONS]
        if scenario in ONLY_5:
            cells = [each or "not in its API" for each in cells]
        cells += ["yes" if scenario in plays else "" for plays in OTHERS.values()]
        yield f"| {TITLES[scenario]} | {' | '.join(cells)} |"


def differs() -> Iterator[str]:
    """The list."""
    for meant in MEANT:
        yield f"- {meant.sentence}"


SECTIONS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {"works": works, "differs": differs}


def with_sections(text: str) -> str:
    """The page with both sections as they should be. Raises ValueError where it has none."""
    for name, lines in SECTIONS.items():
        begin, end = f"<!-- what {name}, by make docs -->\n", "<!-- end -->\n"
        at = text.index(begin) + len(begin)
        text = text[:at] + "".join(f"{line}\n" for line in lines()) + text[text.index(end, at) :]
    return text


def main() -> None:
    PAGE.write_text(with_sections(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    TESTS_PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
