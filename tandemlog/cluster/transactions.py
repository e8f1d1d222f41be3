"""The open transactions of a cluster, as its master lists and decides them."""

from dataclasses import dataclass

from ..v1 import transaction_pb2
from .connection import Connection


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a producer of `producer_group` has begun at `begun_ms` (store time of its
    first message, whose record is at `physical_offset`), with messages to `topics`. `checks`: how
    often this master has asked its producers. `decided`: it is committed, and not all of it is
    written yet; `kept`: no producer is asked any more, it waits for an operator."""

    transaction_id: str
    producer_group: str
    topics: tuple[str, ...]
    messages: int
    begun_ms: int
    physical_offset: int
    checks: int
    decided: bool
    kept: bool


async def open_transactions(connection: Connection, timeout_ms: int) -> list[OpenTransaction]:
    """All that the caller may see, the oldest first."""
    found: list[OpenTransaction] = []
    page = ""
    while True:
        request = transaction_pb2.ListTransactionsRequest(page=page)
        answer = await connection.on_master(
            lambda node, request=request: node.ask(  # type: ignore[misc]
                node.transactions.ListTransactions, request, timeout_ms
            )
        )
        found += map(_transaction, answer.transactions)
        page = answer.next_page
        if not page:
            return found


async def decide_transaction(
    connection: Connection, transaction_id: str, timeout_ms: int, *, commit: bool, dry_run: bool
) -> OpenTransaction | None:
    """See AsyncAdmin.decide_transaction."""
    request = transaction_pb2.DecideTransactionRequest(
        transaction_id=transaction_id,
        outcome=transaction_pb2.COMMITTED if commit else transaction_pb2.ROLLED_BACK,
        dry_run=dry_run,
    )
    answer = await connection.on_master(
        lambda node: node.ask(node.transactions.DecideTransaction, request, timeout_ms)
    )
    return _transaction(answer.transaction) if answer.HasField("transaction") else None


def _transaction(row: transaction_pb2.OpenTransaction) -> OpenTransaction:
    return OpenTransaction(
        row.transaction_id,
        row.producer_group,
        tuple(row.topics),
        row.messages,
        row.begun_ms,
        row.physical_offset,
        row.checks,
        row.decided,
        row.kept,
    )
