"""The filter of a receive: tags with `||` between them, `*` for all, or SQL92."""

from typing import Final

from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from .refusals import MessagingRefusedError

ALL: Final = "*"
MOST_CHARACTERS: Final = 16 << 10


def read_filter(expression: v2.FilterExpression) -> tuple[list[str], str]:
    """The tags, and the SQL text; both empty for a filter that lets everything pass. Raises
    MessagingRefusedError."""
    text = expression.expression.strip()
    if len(text) > MOST_CHARACTERS:
        raise MessagingRefusedError(
            v2.ILLEGAL_FILTER_EXPRESSION,
            f"a filter of {len(text)} characters, the limit is {MOST_CHARACTERS}",
        )
    if expression.type == v2.SQL:
        return [], text
    if text in ("", ALL):
        return [], ""
    tags = list(dict.fromkeys(each.strip() for each in text.split("||") if each.strip()))
    return tags, ""
