"""What a filter costs for each message, so that a node can look at fewer messages at a time.

    amount > 5 AND region IN ('eu', 'us') AND name LIKE 'a%'
         4     +           4              +         8            in quarters of a microsecond

A filter may have a thousand comparisons, and a text that is no plain number is read one by one. So
the weights are those of the slow cases, measured with texts of a few bytes; those of long texts are
bounded by the bytes that are looked at.
"""

from typing import Final

from .expression import (
    Compare,
    Condition,
    In,
    IsNull,
    IsTrue,
    Like,
    Operand,
    Search,
    each_operand,
)

_COMPARISON: Final = 4
_LIKE: Final = 8
_CHARACTERS: Final = 16
"""So many characters of a pattern, or texts of a list, cost one more."""


def weight(condition: Condition) -> int:
    """Of all comparisons in the tree, each of them once; at least 1."""
    return 1 + sum(map(_own_weight, each_operand(condition)))


def _own_weight(operand: Operand) -> int:
    match operand:
        case Compare() | Search() | IsNull() | IsTrue():
            return _COMPARISON
        case In(_, texts):
            return _COMPARISON + len(texts) // _CHARACTERS
        case Like(_, parts):
            return _LIKE + sum(map(len, parts)) // _CHARACTERS
        case _:
            return 0
