"""What comes of each of RocketMQ's own integration tests at nodes: integration/outcomes.toml.

Each class of the released tests is in it: how many tests pass, why others do not, or why the class
does not run. `surprises` compares with what was seen, and `page` is the document of it
(docs/rocketmq-integration-tests.md, written by `make docs`).
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parent / "integration" / "outcomes.toml"
NAMES = "names"
"""The reason of tests that pass at a node that is alone, which has one name. With more: chance."""


class Result(StrEnum):
    """Of one test."""

    PASSED = "passed"
    FAILED = "failed"
    IGNORED = "ignored"
    TIMEOUT = "timeout"


class Ran(NamedTuple):
    """One test, or one class that did not get as far (`test` is empty)."""

    name: str
    """Of the class, below org.apache.rocketmq.test."""
    test: str
    result: Result
    error: str = ""


class Outcome(NamedTuple):
    """What is expected of one class."""

    name: str
    passes: int
    fails: Mapping[str, str]
    """Test -> reason."""
    broker_fails: Sequence[str]
    """Tests that fail at RocketMQ's broker in the same place, too."""
    off: Sequence[str]
    """Tests that RocketMQ itself has switched off."""
    not_run: str
    """The reason, where the class does not run at all."""
    quick: bool
    """Whether the class runs in each test run."""

    @property
    def passes_alone(self) -> bool:
        """Whether more of its tests pass at a node that is alone."""
        return NAMES in self.fails.values()


def outcomes() -> list[Outcome]:
    """All classes, by name."""
    classes = tomllib.loads(FILE.read_text())["class"]
    return [
        Outcome(
            name,
            row.get("passes", 0),
            row.get("fails", {}),
            row.get("broker_fails", ()),
            row.get("off", ()),
            row.get("not_run", ""),
            row.get("quick", False),
        )
        for name, row in sorted(classes.items())
    ]


def reasons() -> dict[str, str]:
    """Sentences by their short names."""
    found: dict[str, str] = tomllib.loads(FILE.read_text())["reasons"]
    return found


def surprises(expected: Outcome, rows: Sequence[Ran], at: str = "nodes") -> list[str]:
    """What is not as expected `at` three nodes, one node ("node") or a broker ("broker")."""
    may_fail = {
        "nodes": set(expected.fails),
        "node": {test for test, reason in expected.fails.items() if reason != NAMES},
        "broker": set(expected.broker_fails),
    }[at]
    # whether those fail for the names depends on hashes of random names
    has_to_fail = may_fail - {test for test, why in expected.fails.items() if why == NAMES}
    failed = {each.test: each for each in rows if each.result in (Result.FAILED, Result.TIMEOUT)}
    passed = [each for each in rows if each.result is Result.PASSED]
    found = [
        f"{expected.name}.{test}: {each.result}, {each.error[:1_500]}"
        for test, each in failed.items()
        if test not in may_fail
    ]
    found += [
        f"{expected.name}.{test} passes; change {FILE.name}"
        for test in sorted(has_to_fail - failed.keys())
    ]
    total = expected.passes + len(expected.fails)
    if not found and len(passed) + len(failed) != total:
        found.append(f"{expected.name}: {len(passed) + len(failed)} tests ran of {total}")
    return found


def page() -> str:
    """docs/rocketmq-integration-tests.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    rows, sentences = outcomes(), reasons()
    ran = [each for each in rows if not each.not_run]
    passes = sum(each.passes for each in ran)
    alone = sum(reason == NAMES for each in ran for reason in each.fails.values())
    why = Counter(reason for each in ran for reason in each.fails.values())
    classes = Counter(each.not_run for each in rows if each.not_run)
    yield "# RocketMQ's own integration tests"
    yield ""
    yield (
        "The integration tests that RocketMQ 5.5.0 releases (`rocketmq-test`), unchanged, against "
        "three nodes that elect their\nmaster. `make rocketmq-tests` runs them; a quick part is in "
        "each test run. This page is written by `make docs` from\n"
        "`tests/interop/integration/outcomes.toml`, with which the run compares."
    )
    yield ""
    yield (
        f"{len(ran)} of {len(rows)} classes can run. In them **{passes} of "
        f"{passes + sum(why.values())} tests pass**, and {alone} more at a node that is alone. "
        "What has a (*) fails in\nthe same way if RocketMQ's own broker 5.5.0 is in the place "
        "of the nodes."
    )
    yield ""
    yield from _table(
        ("", "why a test does not pass, or a class does not run", "tests", "classes"),
        [
            (reason, sentence, str(why[reason] or ""), str(classes[reason] or ""))
            for reason, sentence in sentences.items()
        ],
    )
    yield ""
    yield from _table(
        ("class", "pass", "do not pass"),
        [(f"`{each.name}`", str(each.passes), _failing(each)) for each in ran],
    )
    yield ""
    yield "## Classes that do not run"
    yield ""
    for reason, sentence in sentences.items():
        names = [f"`{each.name}`" for each in rows if each.not_run == reason]
        if names:
            yield f"- {sentence[0].upper()}{sentence[1:]}: {', '.join(names)}."


def _failing(outcome: Outcome) -> str:
    parts = []
    for reason in sorted(set(outcome.fails.values())):
        tests = [test for test, why in outcome.fails.items() if why == reason]
        parts.append(f"{reason}: {_names(tests, outcome.broker_fails)}")
    if outcome.off:
        parts.append(f"switched off by RocketMQ: {_names(outcome.off)}")
    only = [test for test in outcome.broker_fails if test not in outcome.fails]
    if only:
        parts.append(f"at the broker alone: {_names(only)}")
    return "; ".join(parts)


def _names(tests: Sequence[str], marked: Sequence[str] = ()) -> str:
    return ", ".join(f"`{each}`{' (*)' if each in marked else ''}" for each in tests)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"
