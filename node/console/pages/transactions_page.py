"""Transactions that their producers have not ended, and an operator's word on them.

The calls are those of `tandemlog transaction`. An operator's commit has no offsets of groups: those
that the producer wanted to commit with it are not known.
"""

from collections.abc import Sequence
from dataclasses import asdict

from tandemlog.errors import InvalidArgumentError

from ..served_node import ServedNode
from ..visit import MAX_ROWS, Json, Needs, Route, Visit

OUTCOMES = {"commit": True, "rollback": False}
MOST_TOPICS = 20
"""Of one transaction, in its row."""


class TransactionsPage:
    """See the module."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/services/transactions", Needs.CALLER, self._list),
            Route("POST", "/api/services/transactions/decide", Needs.CHANGE, self._decide),
        )

    async def _list(self, visit: Visit) -> Json:
        """The oldest first, from row `first` on."""
        first = visit.number("first", 0)
        async with visit.clients.admin() as admin:
            found = await admin.transactions()
        page = found[first : first + MAX_ROWS]
        return {
            "transactions": [
                {**asdict(each), "topics": each.topics[:MOST_TOPICS], "of": len(each.topics)}
                for each in page
            ],
            "first": first,
            "rows": MAX_ROWS,
            "total": len(found),
            "now_ms": self._node.store.clock.now_ms(),
        }

    async def _decide(self, visit: Visit) -> Json:
        """`outcome` is commit or rollback."""
        transaction_id, outcome = visit.given("transaction_id"), visit.given("outcome")
        visit.confirmed(transaction_id)
        if outcome not in OUTCOMES:
            raise InvalidArgumentError("outcome: give commit or rollback", field="outcome")
        async with visit.clients.admin() as admin:
            had = await admin.decide_transaction(transaction_id, commit=OUTCOMES[outcome])
        return {"transaction_id": transaction_id, "messages": 0 if had is None else had.messages}
