"""Which copy of a block of the log is right, and what this node does about its own.

    own      others                        verdict
    whole    whole, the same               Fine
    damaged  one of them whole             Mend by it
    whole    two whole, the same, differ   Mend: the majority of three
    whole    one whole, differs            Doubt: no copy proves it
    damaged  none whole                    Lost

Pure. A copy is `whole` if its records are right by what they say of themselves: lengths, positions
and the CRC of each body (and of each whole record where the store has such CRCs). That finds most
flips, and a copy with one loses against any copy that is whole. A flip in a field that no CRC
covers leaves a record that is whole and wrong: there the copies vote. One vote each, and more than
half of all whole copies have to agree, two at least: one copy alone never proves another one wrong.

Each node looks at its own copy only, so nothing here says what another node should do.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


class CopyState(Enum):
    """What a holder knows of its copy of the block."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    ABSENT = "absent"
    """It has no such bytes, or they are of another log: it says nothing about them."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A block as `holder` has it: a node, or the archive. `checksum` is of its bytes; empty where
    they could not be read."""

    holder: str
    state: CopyState
    checksum: bytes = b""


@dataclass(frozen=True, slots=True)
class Fine:
    """Nothing is to be done. `agreed`: how many other copies are the same."""

    agreed: int


@dataclass(frozen=True, slots=True)
class Mend:
    """The bytes with this checksum are the right ones; these holders have them."""

    checksum: bytes
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Copies that are whole differ, and none has a majority. `holders`: those that differ from this
    node's copy, or from each other where this node's is damaged."""

    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """This node's copy is damaged and no other one is whole. `asked`: who has a copy."""

    asked: tuple[str, ...]


Verdict: TypeAlias = Fine | Mend | Doubt | Lost


def judge(own: Copy, others: Sequence[Copy]) -> Verdict:
    """The verdict on `own`, which is never ABSENT, by the copies of `others`, whose order does not
    matter."""
    whole = [each for each in others if each.state is CopyState.WHOLE]
    if own.state is not CopyState.WHOLE:
        return _of_damaged(whole, others)
    differ = [each for each in whole if each.checksum != own.checksum]
    if not differ:
        return Fine(len(whole))
    winner = _majority([own, *whole])
    if winner == own.checksum:
        return Fine(len(whole) - len(differ))
    if winner is None:
        return Doubt(_names(differ))
    return Mend(winner, _names(each for each in whole if each.checksum == winner))


def _of_damaged(whole: Sequence[Copy], others: Sequence[Copy]) -> Verdict:
    if not whole:
        return Lost(_names(each for each in others if each.state is not CopyState.ABSENT))
    if len({each.checksum for each in whole}) == 1:
        return Mend(whole[0].checksum, _names(whole))
    winner = _majority(whole)
    if winner is None:
        return Doubt(_names(whole))
    return Mend(winner, _names(each for each in whole if each.checksum == winner))


def _majority(copies: Sequence[Copy]) -> bytes | None:
    """The checksum of more than half of these copies, two at least; None if there is none."""
    (checksum, votes), *_ = Counter(each.checksum for each in copies).most_common(1)
    return checksum if votes >= 2 and 2 * votes > len(copies) else None


def _names(copies: Iterable[Copy]) -> tuple[str, ...]:
    return tuple(sorted(each.holder for each in copies))
