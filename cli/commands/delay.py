"""`tandemlog delay …`: messages that come later.

list      what waits, by the time at which it comes
cancel    call messages back that have not come yet
"""

from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.delayed_messages import DelayedMessage
from tandemlog.cluster.topology import ReadFrom
from tandemlog.errors import InvalidArgumentError, NotWaitingError
from tandemlog.format.delay.handle import decode_handle
from tandemlog.format.errors import FormatError

from ..output.tables import write_rows
from ..shared.command import new_app
from ..shared.completion import complete_topic
from ..shared.exit_codes import NOT_FOUND
from ..shared.failures import CommandError
from ..shared.online import ClusterOptions
from ..shared.options import DryRun

MOST = 10_000_000
COLUMNS = (
    "topic", "queue_id", "deliver_at_ms", "store_timestamp", "body_bytes", "unique_key",
    "recall_handle",
)  # fmt: skip
CANCEL_COLUMNS = ("topic", "unique_key", "outcome")

app = new_app("List and cancel messages that come later.")


@app.command("list")
def list_command(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]",
            autocompletion=complete_topic,
            help="Only messages that come to this topic. [default: all topics]",
        ),
    ] = "",
    maximum: Annotated[
        int,
        typer.Option("--max", min=1, max=MOST, help="Show at most this many, the next to come."),
    ] = 100,
    *,
    cluster: ClusterOptions,
) -> None:
    """List the messages that wait for their time, those that come next first."""

    async def rows(admin: AsyncAdmin) -> list[DelayedMessage]:
        return await admin.delayed(topic, maximum)

    found = cluster.ask(rows, ReadFrom.MASTER)
    write_rows([_row(each) for each in found], cluster.form, COLUMNS)


@app.command("cancel")
def cancel_command(
    handles: Annotated[
        list[str],
        typer.Argument(metavar="HANDLE", help="Recall handles, as `delay list` or a send gives."),
    ],
    dry_run: DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Call messages back: they never come. One that came already is not found, with exit code 4."""
    topics = [_topic_of(each) for each in handles]

    async def cancel(admin: AsyncAdmin) -> list[dict[str, Any]]:
        rows = []
        for topic, handle in zip(topics, handles, strict=True):
            outcome = "would be cancelled" if dry_run else "cancelled"
            try:
                if not dry_run:
                    await admin.recall(topic, handle)
                elif not await _waits(admin, topic, handle):
                    outcome = "not found"
            except NotWaitingError:
                outcome = "not found"
            key = decode_handle(handle).key
            rows.append({"topic": topic, "unique_key": key, "outcome": outcome})
        return rows

    rows = cluster.ask(cancel, ReadFrom.MASTER)
    write_rows(rows, cluster.form, CANCEL_COLUMNS)
    missing = sum(row["outcome"] == "not found" for row in rows)
    if missing:
        raise CommandError(f"{missing} of {len(rows)} messages do not wait (any more)", NOT_FOUND)


async def _waits(admin: AsyncAdmin, topic: str, handle: str) -> bool:
    offset = decode_handle(handle).log_offset
    return any(each.physical_offset == offset for each in await admin.delayed(topic, MOST))


def _topic_of(handle: str) -> str:
    try:
        return decode_handle(handle).topic
    except FormatError as error:
        raise InvalidArgumentError(str(error), field="recall_handle") from error


def _row(message: DelayedMessage) -> dict[str, Any]:
    return {name: getattr(message, name) for name in COLUMNS}
