"""What programs do with RocketMQ's own client, played against a broker or a node, and compared.

    seen = play("4.9.7", "127.0.0.1:9876", tmp_path)        scenario -> what the client saw
    differences(seen_of_a_broker["sync"], seen_of_a_node["sync"])

java/Scenarios.java plays them, some at the same time. What it prints has nothing that differs by
chance: two runs against one broker have no differences.
"""

import json
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from interop.jars import java

VERSIONS = ("5.5.0", "4.9.7")
"""Of the Java client."""
SCENARIOS = (
    "transactions",
    "timed",
    "delayed",
    "retried",
    "dead",
    "begins",
    "shared",
    "orderly",
    "broadcast",
    "resumed",
    "filtered",
    "requests",
    "groups",
    "topics",
    "pull",
    "lite-pull",
    "queries",
    "times",
    "sync",
    "async",
    "oneway",
    "batch",
    "selector",
    "bodies",
    "auto-created",
    "refused",
    "popped",
    "pop-retried",
    "pop-assigned",
    "pop-direct",
    "pop-filtered",
    "pop-orderly",
)
ONLY_5 = frozenset({"timed", *(each for each in SCENARIOS if each.startswith("pop"))})
"""4.x has no timers and no POP."""
TIMEOUT_S = 300


class Seen(NamedTuple):
    """What came of one scenario."""

    problem: str | None
    """The exception that ended it."""
    seen: dict[str, Any]


class Difference(NamedTuple):
    """One field: where it is, what a broker has there and what a node has."""

    path: str
    broker: object
    node: object


class Allowed(NamedTuple):
    """A difference that is meant. `scenario` and `path` may have wildcards."""

    scenario: str
    path: str
    reason: str


ABSENT = "(absent)"


def scenarios(version: str) -> list[str]:
    """Those that clients of the version can play."""
    return [each for each in SCENARIOS if each not in ONLY_5 or not version.startswith("4.")]


def play(
    version: str,
    name_server: str,
    broker: str,
    home: Path,
    *names: str,
    at_once: int = 32,
    turn: int = 1,
) -> dict[str, Seen]:
    """Play the scenarios `names`, or all, against the broker of that name that the name server
    tells of. Each `turn` has topics and groups of its own. Raises CalledProcessError if the program
    ends otherwise than by itself."""
    suffix = f"-v{version.replace('.', '')}x{turn if turn > 1 else ''}"
    command = java(
        "Scenarios",
        name_server,
        broker,
        suffix,
        str(at_once),
        *names,
        home=home,
        memory="768m",
        version=version,
    )
    with (home / "scenarios.log").open("wb") as log:
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=log, text=True, timeout=TIMEOUT_S
        )
    found = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        found[row["scenario"]] = Seen(row["problem"], row["seen"])
    return found


def differences(broker: object, node: object, path: str = "") -> Iterator[Difference]:
    """Field by field; lists of equal length element by element."""
    if isinstance(broker, dict) and isinstance(node, dict):
        for key in sorted(broker.keys() | node.keys()):
            yield from differences(broker.get(key, ABSENT), node.get(key, ABSENT), f"{path}/{key}")
    elif isinstance(broker, list) and isinstance(node, list) and len(broker) == len(node):
        for number, (theirs, ours) in enumerate(zip(broker, node, strict=True)):
            yield from differences(theirs, ours, f"{path}/{number}")
    elif broker != node:
        yield Difference(path, broker, node)


def is_allowed(scenario: str, difference: Difference, allowed: list[Allowed]) -> bool:
    return any(
        fnmatchcase(scenario, each.scenario) and fnmatchcase(difference.path, each.path)
        for each in allowed
    )
