"""Asking for more than a node takes or gives at a time: in parts, and page after page.

    request   1 000 names, 4 000 rows, … ─▶ one after the other
    answer    next_page ─▶ asked again with it, until it is empty

The limits are in format/calls.py.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ..format.calls import MAX_NAMES
from ..v1 import admin_pb2

Item = TypeVar("Item")


def in_parts(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    """`items` in order, at most `most` of them a part; no part of none."""
    return [items[first : first + most] for first in range(0, len(items), most)]


async def every_page(ask: Callable[[str], Awaitable[str]]) -> None:
    """`ask` for each page; its answer is the next one."""
    page = await ask("")
    while page:
        page = await ask(page)


async def pages_of_topics(
    names: Sequence[str],
    ask: Callable[[admin_pb2.ListTopicsRequest], Awaitable[admin_pb2.ListTopicsResponse]],
    *,
    of_master: bool = False,
) -> list[admin_pb2.Topic]:
    """The topics `names`, or all. `of_master`: the caller takes them for the cluster's, so a node
    that does not know that it leads refuses."""
    topics: list[admin_pb2.Topic] = []
    for part in in_parts(names, MAX_NAMES) or [()]:

        async def page_of(page: str, part: Sequence[str] = part) -> str:
            answer = await ask(
                admin_pb2.ListTopicsRequest(names=part, page=page, of_master=of_master)
            )
            topics.extend(answer.topics)
            return answer.next_page

        await every_page(page_of)
    return topics
