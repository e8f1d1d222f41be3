"""Messages that come later: how many by when, and the next of them.

bars    counts by due time, from this node's memory, of all topics: for a caller who may read
        every topic
rows    the next ones, of all topics or of one, as the master lists them to this caller
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from tandemlog.errors import InvalidArgumentError, UnavailableError
from tandemlog.format.delay.handle import decode_handle
from tandemlog.format.errors import FormatError

from ...access.identities import Right
from ..served_node import ServedNode
from ..visit import MAX_ROWS, Json, Needs, Route, Visit

ROWS = 50
LIST_S = 5.0
"""How long the list is looked for: those of one topic may stand behind millions of others."""
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
BARS = (
    ("due now", 0),
    ("within a minute", MINUTE_MS),
    ("within 10 minutes", 10 * MINUTE_MS),
    ("within an hour", HOUR_MS),
    ("within 6 hours", 6 * HOUR_MS),
    ("within a day", DAY_MS),
    ("within a week", 7 * DAY_MS),
    ("within 30 days", 30 * DAY_MS),
)
LATER = "later"


class DelayedPage:
    """See the module."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/services/delayed", Needs.CALLER, self._list),
            Route("POST", "/api/services/delayed/recall", Needs.CHANGE, self._recall),
        )

    async def _list(self, visit: Visit) -> Json:
        topic, count = visit.text("topic"), visit.number("count", ROWS, least=1, most=MAX_ROWS)
        identity = visit.identity
        reads_all = identity is None or identity.patterns(Right.READ).everything
        bars = await asyncio.to_thread(self._bars) if reads_all else None
        async with visit.clients.admin() as admin:
            try:
                async with asyncio.timeout(LIST_S):
                    found = await admin.delayed(topic, count)
            except TimeoutError:
                raise UnavailableError(
                    f"the messages that wait for {topic or 'their time'} could not be found within "
                    f"{LIST_S:.0f} s: `tandemlog delay list` has more time"
                ) from None
        return {
            "bars": bars,
            "messages": [asdict(each) for each in found],
            "count": count,
            "most": MAX_ROWS,
            "now_ms": self._node.store.clock.now_ms(),
        }

    def _bars(self) -> Sequence[Json]:
        """How many come within each time, and after the one before it."""
        store = self._node.store
        now_ms = store.clock.now_ms()
        with store.delays.lock:
            counts = store.delays.rows.counts_by_due([now_ms + within for _, within in BARS])
        labels = (*(label for label, _ in BARS), LATER)
        return [
            {"label": label, "count": count} for label, count in zip(labels, counts, strict=True)
        ]

    async def _recall(self, visit: Visit) -> Json:
        """Call the message of `recall_handle` back, which `confirm` names by its unique key."""
        handle = visit.given("recall_handle")
        try:
            found = decode_handle(handle)
        except FormatError as error:
            raise InvalidArgumentError(str(error), field="recall_handle") from error
        visit.confirmed(found.key)
        async with visit.clients.admin() as admin:
            await admin.recall(found.topic, handle)
        return {"topic": found.topic, "unique_key": found.key}
