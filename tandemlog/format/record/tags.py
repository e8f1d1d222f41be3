"""Tag expressions of a subscription: `*` or nothing for all, else `TagA || TagB`.

The store compares hashes only, in the queue units; two tags may share one, so a reader compares
the text as well. A message without a tag matches `*` alone.

RocketMQ takes any other text for a tag: `TagA && TagB`, `amount > 5` and `TagA,TagB` would be tags
that no message has, and a reader would pass everything without a word. Their authors mean something
else, so they are refused.
"""

import re
from collections.abc import Iterable

from ..errors import FormatError
from ..java_hash import java_hash

ALL_TAGS = "*"

_NO_PART_OF_A_TAG = re.compile(r"[\s,=<>()|]|&&")


def parse_tags(expression: str | None) -> frozenset[str] | None:
    """The tags asked for, None for all; raises FormatError if only bars are left, and for what
    looks like another language: `&&`, white space, a comma, a comparison, brackets or a single bar
    inside a tag, and a tag in quotes."""
    text = (expression or "").strip()
    if text in ("", ALL_TAGS):
        return None
    tags = frozenset(piece.strip() for piece in text.split("||")) - {""}
    if not tags:
        raise FormatError(
            f"tag expression {expression!r} contains no tag: write `TagA || TagB` or *"
        )
    for tag in sorted(tags):
        sign = _NO_PART_OF_A_TAG.search(tag)
        if sign is not None or _in_quotes(tag):
            what = "quotes" if sign is None else f"{sign[0]!r}"
            raise FormatError(
                f"tag expression {expression!r} has {what} in {tag!r}, which means nothing there: "
                "it is not SQL, and messages are chosen by their tag alone. Write `TagA`, several "
                "as `TagA || TagB`, or * for all"
            )
    return tags


def _in_quotes(tag: str) -> bool:
    return len(tag) > 1 and tag[0] == tag[-1] and tag[0] in "'\"`"


def tag_hashes(tags: Iterable[str] | None) -> frozenset[int] | None:
    """What the queue units of messages with these tags hold; None for all."""
    return None if tags is None else frozenset(java_hash(tag) for tag in tags)
