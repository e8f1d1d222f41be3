"""Tag expressions of a subscription: `*` or nothing for all, else `TagA || TagB`.

The store compares hashes only, in the queue units; two tags may share one, so a reader compares
the text as well. A message without a tag matches `*` alone.

RocketMQ takes any other text for a tag: `TagA && TagB` and `'TagA'` would be tags that no message
has. Their authors mean something else, so they are refused.
"""

from collections.abc import Iterable

from ..errors import FormatError
from ..java_hash import java_hash

ALL_TAGS = "*"


def parse_tags(expression: str | None) -> frozenset[str] | None:
    """The tags asked for, None for all; raises FormatError if only bars are left, for `&&` and
    for a tag in quotes."""
    text = (expression or "").strip()
    if text in ("", ALL_TAGS):
        return None
    tags = frozenset(piece.strip() for piece in text.split("||")) - {""}
    if not tags:
        raise FormatError(
            f"tag expression {expression!r} contains no tag: write `TagA || TagB` or *"
        )
    if any("&&" in tag or _in_quotes(tag) for tag in tags):
        raise FormatError(
            f"tag expression {expression!r} has && or quotes, which mean nothing in one: "
            "write `TagA || TagB` or *"
        )
    return tags


def _in_quotes(tag: str) -> bool:
    return len(tag) > 1 and tag[0] == tag[-1] and tag[0] in "'\"`"


def tag_hashes(tags: Iterable[str] | None) -> frozenset[int] | None:
    """What the queue units of messages with these tags hold; None for all."""
    return None if tags is None else frozenset(java_hash(tag) for tag in tags)
