"""`tandemlog transaction …`: transactions that their producers have not ended.

list               what is open, the oldest first
commit, rollback   the decision of an operator, for a producer that does not come back
"""

from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom
from tandemlog.cluster.transactions import OpenTransaction
from tandemlog.errors import TransactionDecidedError, UnknownTransactionError

from ..output.tables import write_rows
from ..shared.command import new_app
from ..shared.exit_codes import NOT_FOUND
from ..shared.failures import CommandError
from ..shared.online import ClusterOptions
from ..shared.options import DryRun

COLUMNS = (
    "transaction_id", "producer_group", "topics", "messages", "begun_ms", "checks", "state",
)  # fmt: skip
END_COLUMNS = ("transaction_id", "messages", "outcome")
MISSING = frozenset({"not found", "decided the other way"})

app = new_app("List transactions that are open, and decide them.")

Ids = Annotated[
    list[str],
    typer.Argument(metavar="TRANSACTION", help="Ids, as `transaction list` gives them."),
]


@app.command("list")
def list_command(*, cluster: ClusterOptions) -> None:
    """List open transactions, the oldest first."""

    async def rows(admin: AsyncAdmin) -> list[OpenTransaction]:
        return await admin.transactions()

    found = cluster.ask(rows, ReadFrom.MASTER)
    write_rows([_row(each) for each in found], cluster.form, COLUMNS)


@app.command("commit")
def commit_command(transactions: Ids, dry_run: DryRun = False, *, cluster: ClusterOptions) -> None:
    """Commit transactions: their messages are there from now on. Offsets of groups that their
    producers wanted to commit with them are not known, and not committed. One that is not open is
    not found, with exit code 4."""
    _decide(transactions, cluster, commit=True, dry_run=dry_run)


@app.command("rollback")
def rollback_command(
    transactions: Ids, dry_run: DryRun = False, *, cluster: ClusterOptions
) -> None:
    """Roll transactions back: their messages are never there. One that is not open is not found,
    with exit code 4."""
    _decide(transactions, cluster, commit=False, dry_run=dry_run)


def _decide(
    transactions: list[str], cluster: ClusterOptions, *, commit: bool, dry_run: bool
) -> None:
    done = "committed" if commit else "rolled back"

    async def decide(admin: AsyncAdmin) -> list[dict[str, Any]]:
        rows = []
        for name in transactions:
            messages = 0
            outcome = f"would be {done}" if dry_run else done
            try:
                had = await admin.decide_transaction(name, commit=commit, dry_run=dry_run)
                messages = 0 if had is None else had.messages
            except UnknownTransactionError:
                outcome = "not found"
            except TransactionDecidedError:
                outcome = "decided the other way"
            rows.append({"transaction_id": name, "messages": messages, "outcome": outcome})
        return rows

    rows = cluster.ask(decide, ReadFrom.MASTER)
    write_rows(rows, cluster.form, END_COLUMNS)
    missing = sum(row["outcome"] in MISSING for row in rows)
    if missing:
        raise CommandError(f"{missing} of {len(rows)} transactions are not open", NOT_FOUND)


def _row(transaction: OpenTransaction) -> dict[str, Any]:
    state = "decided" if transaction.decided else "kept" if transaction.kept else "open"
    values = {name: getattr(transaction, name, None) for name in COLUMNS}
    return {**values, "topics": ",".join(transaction.topics), "state": state}
