"""What tells a request from another one under the same number."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tandemlog.format.columns.checksum_columns import content_checksum
from tandemlog.format.record.request_checksum import content_checksum as content_checksum_of_few
from tandemlog.format.record.request_checksum import request_checksum
from tandemlog.message import Message
from tandemlog.produce.framing import Framer

MESSAGES = [
    Message("orders", b"a body", keys=["k"], tags="t", properties={"p": "1"}),
    Message("bills", b"", properties={"UNIQ": "2"}),
    Message("orders", b"x" * 300),
]
SOMEWHERE = {"born_address": "10.0.0.1", "now_ms": lambda: 1_000}
ELSEWHERE = {"born_address": "10.0.0.2", "now_ms": lambda: 9_999}
FAR = {"born_address": "fe80::1", "now_ms": lambda: 5}


def content(
    messages: list[Message], where: dict[str, object], queue_id: int = 0, **how: Any
) -> int:
    framer = Framer(**where)  # type: ignore[arg-type]
    records = [framer.frame(message, queue_id) for message in messages]
    sizes = [len(each) for each in records]
    found = content_checksum(b"".join(records), np.array(sizes), **how)
    assert how or content_checksum_of_few(b"".join(records), sizes) == found
    return found


def test_of_bytes_can_vouch_for_what_stands_before() -> None:
    assert request_checksum((b"ab", memoryview(b"cd"))) == request_checksum((b"abcd",))
    chained = request_checksum((b"cd",), request_checksum((b"ab",)))
    assert chained == request_checksum((b"abcd",)) != request_checksum((b"cd",))


@pytest.mark.parametrize("where", [ELSEWHERE, FAR])
def test_content_does_not_depend_on_who_frames_it_and_when(where: dict[str, object]) -> None:
    known = content(MESSAGES, SOMEWHERE)
    assert content(MESSAGES, where) == known
    assert content(MESSAGES, where, queue_id=3) == known
    named = content(MESSAGES, SOMEWHERE, queues=True)
    assert content(MESSAGES, where, queues=True) == named
    assert content(MESSAGES, where, queue_id=3, queues=True) != named


def test_properties_that_are_left_out_may_change() -> None:
    first, *rest = MESSAGES
    longer = [replace(first, properties={"p": "another", "q": "1"}), *rest]
    plain = [replace(first, properties={"p": "1", "q": "2"}), *rest]
    assert content(longer, FAR, left_out=("p", "q")) == content(
        plain, SOMEWHERE, left_out=("q", "p")
    )
    assert content(longer, FAR, left_out=("p",)) != content(plain, FAR, left_out=("p",))
    # the name is content, as it is there or not
    bare = [replace(first, properties={}), *rest]
    assert content(bare, FAR, left_out=("p", "q")) != content(plain, FAR, left_out=("p", "q"))


def test_every_part_of_a_message_is_content() -> None:
    first, *rest = MESSAGES
    others = [
        replace(first, topic="others"),
        replace(first, body=b"b body"),
        replace(first, keys=["l"]),
        replace(first, tags=""),
        replace(first, properties={"p": "2"}),
        replace(first, properties={"q": "1"}),
        replace(first, flag=1),
    ]
    sums = {content([each, *rest], SOMEWHERE) for each in [first, *others]}
    sums.add(content([*rest, first], SOMEWHERE))
    sums.add(content(rest, SOMEWHERE))
    sums.add(content([*MESSAGES, first], SOMEWHERE))
    assert len(sums) == len(others) + 4
