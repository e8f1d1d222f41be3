"""`tandemlog offsets`: what queues hold, where a time lies in them, how far a group has come."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.reading.positions import Queue

from ..output.tables import write_rows
from ..shared.command import new_app
from ..shared.completion import TopicArgument, complete_group
from ..shared.online import ClusterOptions, all_ranges
from ..shared.options import ReadFromOption, now_ms
from ..shared.times import FORMS, parse_time_ms

app = new_app()


class BoundaryName(StrEnum):
    LOWER = "lower"
    UPPER = "upper"


@app.command("offsets")
def offsets_command(
    topic: TopicArgument,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help=f"Show the offset for this store time: {FORMS}."),
    ] = None,
    boundary: Annotated[
        BoundaryName,
        typer.Option(
            "--boundary",
            help="Which offset --at shows. lower: that of the first message stored at TIME or "
            "later; upper: that of the last message stored at TIME or earlier.",
        ),
    ] = BoundaryName.LOWER,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            help="Show the offsets that this group has committed.",
            autocompletion=complete_group,
        ),
    ] = None,
    read_from: ReadFromOption = ReadFrom.ANY,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show one row for each queue: topic, queue_id, min_offset, max_offset.

    max_offset is one past the last message. --at adds the column offset; --group adds
    committed_offset and lag, in messages. A queue without a committed offset has everything still
    before it, and so all its messages as lag. `group describe` has the lag in seconds too.
    """
    time_ms = parse_time_ms(at, now_ms()) if at is not None else None
    rows = cluster.ask(lambda admin: _rows(admin, topic, time_ms, boundary, group), read_from)
    columns = ["topic", "queue_id", "min_offset", "max_offset"]
    columns += ["offset"] if time_ms is not None else []
    columns += ["committed_offset", "lag"] if group is not None else []
    write_rows(rows, cluster.form, columns)


async def _rows(
    admin: AsyncAdmin, topic: str, time_ms: int | None, boundary: BoundaryName, group: str | None
) -> list[dict[str, Any]]:
    ranges = await all_ranges(admin, topic, (await admin.topic(topic)).read_queues)
    at_time: dict[Queue, int] = {}
    if time_ms is not None:
        upper = boundary is BoundaryName.UPPER
        at_time = await admin.search_offset(topic, time_ms, upper=upper)
    committed = await _committed(admin, group, topic) if group is not None else {}
    rows = []
    for each in ranges:
        queue = (topic, each.queue_id)
        row: dict[str, Any] = {
            "topic": topic,
            "queue_id": each.queue_id,
            "min_offset": each.min_offset,
            "max_offset": each.max_offset,
        }
        if time_ms is not None:
            row["offset"] = at_time.get(queue, 0)
        if group is not None:
            offset = committed.get(queue)
            row["committed_offset"] = offset
            row["lag"] = max(0, each.max_offset - (each.min_offset if offset is None else offset))
        rows.append(row)
    return rows


async def _committed(admin: AsyncAdmin, group: str, topic: str) -> dict[Queue, int]:
    """Raises UnknownGroupError: a mistyped group must not look like one that has read nothing."""
    offsets = await admin.committed(group, topic)
    if not offsets and group not in await admin.groups():
        await admin.describe_group(group)  # it may have members all the same
    return offsets
