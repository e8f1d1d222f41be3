"""What clients of the 5.x API see of a node, by scenarios (scenarios.py has their names).

The programs in interop/messaging do the same in each language and print one form; `seen_of` gives
it by scenario. Of all the messages, SimpleConsumer and PushConsumer have to get each once, but what
failed at first, and none that was called back or rolled back.
"""

from collections.abc import Mapping
from typing import Any, Final

_FIFO: Final = [[f"fifo{number}", 1] for number in range(3)]
_NORMAL: Final = [["normal", 1], ["normal", 2]]

SCENES: Final[Mapping[str, Any]] = {
    "sync": sorted([*_FIFO, *_NORMAL]),
    "timed": [["delay", 1]],
    "transactions": [["check", 1], ["commit", 1]],
    "retried": sorted([["check", 1], ["commit", 1], ["delay", 1], *_FIFO, *_NORMAL]),
    "orderly": ["fifo0", "fifo1", "fifo1", "fifo1", "fifo2"],
    "dead": [["fifo0", 1]],
}
OF_NODE: Final = {name: seen for name, seen in SCENES.items() if name != "orderly"}
"""That client has no list of pauses: a message of an ordered group that fails is a dead letter."""
_OF_SCENARIO: Final = {
    "timed": frozenset({"delay", "never"}),
    "transactions": frozenset({"check", "commit", "rollback"}),
}


def seen_of(printed: Mapping[str, Any]) -> Mapping[str, Any]:
    """By scenario."""
    rows = printed["simple"]
    seen = {
        name: sorted(each for each in rows if each[0] in bodies)
        for name, bodies in _OF_SCENARIO.items()
    }
    others = frozenset[str]().union(*_OF_SCENARIO.values())
    return {
        **seen,
        "sync": sorted(each for each in rows if each[0] not in others),
        "retried": sorted(printed["push"]),
        "orderly": printed["order"],
        "dead": printed["dead"],
    }
