"""The dead letters of one group: list them, read one, send them again, forget them.

The calls are those of `tandemlog dlq`. What is done to all letters is done to those that were
shown: the list has their `end`, and the page sends it back as `before`.

    0 . . . . first ─ RESENT ─▶ next . . . . end
                                             a letter that comes back is here, and stays

All letters are sent again in parts of RESENT: the page repeats its request with `next` until there
is none, so no request lasts for long. It would never be over for a group that rejects them all
again, without an end.
"""

from collections.abc import Sequence
from dataclasses import asdict

from tandemlog.consume.work.work_admin import GroupWork
from tandemlog.errors import InvalidArgumentError
from tandemlog.format.lease.dead_letter import decode_dead_letter
from tandemlog.format.lease.policy import dead_letter_topic

from ..body_preview import preview
from ..served_node import ServedNode
from ..visit import Json, Needs, Route, Visit
from ..work_clients import work_admin

ROWS = 100
RESENT = 500
PATH = "/api/services/dead-letters/{group}"


class DeadLettersPage:
    """See the module."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", PATH, Needs.CALLER, self._list),
            Route("GET", f"{PATH}/{{number}}", Needs.CALLER, self._read),
            Route("POST", f"{PATH}/resend", Needs.CHANGE, self._resend),
            Route("POST", f"{PATH}/purge", Needs.CHANGE, self._purge),
        )

    async def _list(self, visit: Visit) -> Json:
        """From number `first` on, the oldest first; `next` is where the next page begins, null on
        the last one."""
        group, first = visit.part("group"), visit.number("first", 0)
        async with work_admin(visit.clients) as work:
            found = await work.dead_letters(group, first=first, count=ROWS + 1)
            known = await work.group_work(group)  # after the list: `end` is behind all of it
        return {
            "group": group,
            "left": known.dead_letters,
            "end": _end(known),
            "letters": [asdict(each) for each in found[:ROWS]],
            "next": found[ROWS].queue_offset if len(found) > ROWS else None,
            "now_ms": self._node.store.clock.now_ms(),
        }

    async def _read(self, visit: Visit) -> Json:
        group, number = visit.part("group"), visit.part("number")
        if not (number.isascii() and number.isdigit() and len(number) <= 18):
            raise InvalidArgumentError(f"{number[:40]!r} is not a number", field="number")
        async with work_admin(visit.clients) as work:
            message = await work.dead_letter(group, int(number))
        letter = decode_dead_letter(message.record)
        return {
            "group": group,
            "queue_offset": message.queue_offset,
            "origin_topic": letter.topic,
            "origin_queue_id": letter.queue_id,
            "origin_queue_offset": letter.queue_offset,
            "origin_message_id": letter.message_id,
            "attempts": letter.attempts,
            "last_error": letter.last_error,
            "first_attempt_ms": letter.first_attempt_ms,
            "last_attempt_ms": letter.last_attempt_ms,
            "store_timestamp": message.record.store_timestamp,
            "properties": list(message.properties.items()),
            "body": preview(lambda: message.body),
        }

    async def _resend(self, visit: Visit) -> Json:
        """Those of `numbers`, or without it all from `first` on and below `before`, RESENT at most;
        `next` is where the rest begins, null if there is none. `refused` says of each
        that was not sent why."""
        group = visit.part("group")
        visit.confirmed(group)
        numbers = _numbers(visit)
        async with work_admin(visit.clients, changes=True) as work:
            following = None
            if numbers is None:
                first, before = visit.given_number("first", 0), visit.given_number("before")
                found = await work.dead_letters(group, first=first, count=RESENT + 1)
                wanted = [each.queue_offset for each in found if each.queue_offset < before]
                numbers, following = wanted[:RESENT], next(iter(wanted[RESENT:]), None)
            sent = await work.resend_dead_letters(group, numbers) if numbers else []
        refused = [each for each in sent if each.refusal]
        return {
            "sent": len(sent) - len(refused),
            "refused": [
                {"queue_offset": each.queue_offset, "reason": each.refusal} for each in refused
            ],
            "next": following,
        }

    async def _purge(self, visit: Visit) -> Json:
        """Those with numbers below `before`, that is the `end` of the list that was shown: what
        came since is kept."""
        group = visit.part("group")
        visit.confirmed(group)
        before = visit.given_number("before")
        async with work_admin(visit.clients, changes=True) as work:
            return {"purged": await work.purge_dead_letters(group, before)}


def _end(known: GroupWork) -> int:
    """One past the last dead letter; 0 where there has been none."""
    letters = dead_letter_topic(known.group)
    return max((each.max_offset for each in known.queues if each.topic == letters), default=0)


def _numbers(visit: Visit) -> list[int] | None:
    """Raises InvalidArgumentError."""
    numbers = visit.body.get("numbers")
    if numbers is None:
        return None
    fits = isinstance(numbers, list) and 0 < len(numbers) <= RESENT
    if not fits or not all(type(each) is int and 0 <= each < 1 << 63 for each in numbers):
        raise InvalidArgumentError(f"numbers: give 1 to {RESENT} whole numbers", field="numbers")
    return list(numbers)
