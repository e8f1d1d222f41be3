"""`tandemlog group …`: consumer groups, their members and lag, and where they continue reading.

list      all groups, one row each
describe  members with what they own; for each queue the offset, the end, what waits; of a work
          queue the policy, and what is under way
policy    attempts, pauses and order of a work queue, shown or changed
reset     earliest, latest, a time, an offset, a shift; only while no member is there
delete    the group with its offsets; only while no member is there
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.group.group_admin import NOT_KNOWN_THERE, GroupDescription, OffsetChange
from tandemlog.consume.reading.positions import EARLIEST, LATEST, Queue, Start
from tandemlog.consume.reading.queue_lag import QueueLag
from tandemlog.consume.work.work_admin import AsyncWorkAdmin, GroupWork
from tandemlog.errors import InvalidArgumentError, UnknownGroupError, UnknownQueueError
from tandemlog.format.lease.policy import MAX_ATTEMPTS
from tandemlog.format.words import queues_text

from ..output.tables import Format, write_lines, write_note, write_rows, write_table
from ..output.work_tables import (
    POLICY_COLUMNS,
    Begin,
    Order,
    backoff_option,
    policy_row,
    work_object,
    write_work,
)
from ..shared.command import new_app
from ..shared.completion import complete_group, complete_topic
from ..shared.online import ClusterOptions
from ..shared.options import DryRun, now_ms
from ..shared.times import parse_time_ms

AT_ONCE = 8
"""Groups that are asked about at a time."""
COLUMNS = ("group", "kind", "state", "members", "topics", "lag", "lag_seconds")
MEMBER_COLUMNS = ("client_id", "host", "instance_id", "member_id", "assigned", "heard_seconds_ago")
QUEUE_COLUMNS = (
    "topic", "queue_id", "client_id", "committed_offset", "max_offset", "lag", "lag_seconds",
)  # fmt: skip
CHANGE_COLUMNS = ("topic", "queue_id", "before", "after", "shift")

app = new_app("List, describe, reset and delete consumer groups; set policies of work queues.")

Group = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group)]


@app.command("list")
def list_command(*, cluster: ClusterOptions) -> None:
    """List the groups: kind and number of members, state, topics, and what waits for them.

    kind is own, classic (RocketMQ's clients) or work (a work queue); empty without members.

    lag is in messages, over all queues; lag_seconds is the longest time that one of them has
    waited. A queue without a committed offset counts from its beginning.
    """

    async def rows(admin: AsyncAdmin) -> list[dict[str, Any]]:
        turn = asyncio.Semaphore(AT_ONCE)

        async def row(group: str) -> dict[str, Any]:
            async with turn:
                return _row(*await _described(admin, group))

        return list(await asyncio.gather(*map(row, await admin.groups())))

    write_rows(cluster.ask(rows, ReadFrom.MASTER), cluster.form, COLUMNS)


@app.command("describe")
def describe_command(group: Group, *, cluster: ClusterOptions) -> None:
    """Show a group: its members with their host and queues, and the lag of each queue. Of a work
    queue: its policy, leases, retries and attempts.

    With --format jsonl, the output is one object that contains everything.
    """

    work = cluster.ask_work(lambda admin: group_work(admin, group))

    async def describe(admin: AsyncAdmin) -> tuple[GroupDescription, list[QueueLag]]:
        if work is not None:  # it may have neither members nor offsets
            return await _described(admin, group)
        return await admin.describe_group(group), await admin.lag(group)

    description, lags = cluster.ask(describe, ReadFrom.MASTER)
    row = _row(description, lags)
    members, queues = _member_rows(description), _queue_rows(description, lags)
    if cluster.form is Format.JSONL:
        shown = None if work is None else work_object(work)
        write_lines([{**row, "members": members, "queues": queues, "work": shown}])
        return
    write_table([row], COLUMNS)
    if members:
        typer.echo()
        write_table(members, MEMBER_COLUMNS)
    if queues:
        typer.echo()
        write_table(queues, QUEUE_COLUMNS)
    if work is not None and work.queues:
        typer.echo()
        write_work(work)


@app.command("policy")
def policy_command(
    group: Group,
    max_attempts: Annotated[
        int | None,
        typer.Option(
            "--max-attempts",
            metavar="N",
            min=1,
            max=MAX_ATTEMPTS,
            help="Deliveries of a message before it becomes a dead letter.",
        ),
    ] = None,
    backoff: Annotated[
        str | None,
        typer.Option(
            "--backoff",
            metavar="SECONDS[,…]",
            help="Seconds before the second attempt, which double with each further one; or "
            "seconds for each attempt, the last of which stay.",
        ),
    ] = None,
    ordered: Annotated[
        Order | None,
        typer.Option(
            "--ordered",
            help="One message at a time: of each queue, of equal sharding keys, or in any order.",
        ),
    ] = None,
    start: Annotated[
        Begin | None,
        typer.Option("--start", help="Where it begins in topics that are new to it."),
    ] = None,
    dry_run: DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show or change how a group works on its queue: attempts, pauses between them, order.

    Without options the policy is shown. A change counts for all consumers of the group at once. A
    consumer that passes a policy of its own when it starts changes it again.
    """
    pauses = None if backoff is None else backoff_option(backoff)
    changes = (max_attempts, pauses, ordered, start)
    if all(each is None for each in changes):
        work = cluster.ask_work(lambda admin: admin.group_work(group))
        write_rows([{"group": group, **policy_row(work.policy)}], cluster.form, POLICY_COLUMNS)
        return
    change = cluster.ask_work(
        lambda admin: admin.set_policy(
            group,
            max_attempts=max_attempts,
            backoff=pauses,
            ordered=None if ordered is None else ordered.value,
            start=None if start is None else start.value,
            dry_run=dry_run,
        )
    )
    rows = [
        {"group": group, "policy": name, **policy_row(policy)}
        for name, policy in (("before", change.before), ("after", change.after))
    ]
    write_rows(rows, cluster.form, ("group", "policy", *POLICY_COLUMNS[1:]))
    if dry_run:
        write_note(f"{group}: nothing was changed")


@app.command("reset")
def reset_command(
    group: Group,
    earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Read everything that is there again.")
    ] = False,
    latest: Annotated[
        bool, typer.Option("--to-latest", help="Skip everything that is there.")
    ] = False,
    time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="Continue with the first message stored at TIME or later.",
        ),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            "--to-offset", metavar="N", min=0, help="Continue at this queue offset; needs --topic."
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by", metavar="N", help="Skip N messages of each queue; -N: read N again."
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            help="Only this topic; may be repeated. [default: all that the group has offsets of]",
            autocompletion=complete_topic,
        ),
    ] = None,
    queues: Annotated[
        list[int] | None,
        typer.Option("--queue", "-q", min=0, help="Only this queue; may be repeated."),
    ] = None,
    dry_run: DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Move a group: where its members continue reading. Shows each queue before and after.

    Refused with exit code 5 while the group has members, because their next commit would undo it:
    stop them first. Offsets stay within what a queue holds.
    """
    if sum([earliest, latest, time is not None, offset is not None, shift_by is not None]) != 1:
        raise typer.BadParameter(
            "give exactly one of --to-earliest, --to-latest, --to-time, --to-offset and --shift-by"
        )
    if offset is not None and not topics:
        raise typer.BadParameter("--to-offset needs --topic: each topic has offsets of its own")
    names = topics or []
    to: Start | None = EARLIEST if earliest else LATEST if latest else None
    if time is not None:
        to = parse_time_ms(time, now_ms())

    async def reset(admin: AsyncAdmin) -> list[OffsetChange]:
        if offset is None and not queues:
            return await admin.reset_offsets(
                group, names, to=to, shift_by=shift_by, dry_run=dry_run
            )
        if offset is None:
            planned = await admin.reset_offsets(
                group, names, to=to, shift_by=shift_by, dry_run=True
            )
            wanted = {(each.topic, each.queue_id): each.after for each in planned}
        else:
            wanted = {
                (name, queue_id): offset
                for name in names
                for queue_id in range((await admin.topic(name)).read_queues)
            }
        places = _only(wanted, queues or [])
        return await admin.reset_offsets(group, names, to=places, dry_run=dry_run)

    changes = cluster.ask(reset, ReadFrom.MASTER)
    write_rows(map(_change_row, changes), cluster.form, CHANGE_COLUMNS)
    if not changes:
        write_note(
            f"{group} has committed no offsets: nothing is to be reset. What a group has done of a "
            "work queue is not reset: a group of another name begins where `group policy NAME "
            "--start` says"
        )
    if dry_run:
        write_note(f"{group}: nothing was changed")


@app.command("delete")
def delete_command(group: Group, dry_run: DryRun = False, *, cluster: ClusterOptions) -> None:
    """Delete a group with its offsets. Refused with exit code 5 while it has members."""
    cluster.ask(lambda admin: admin.delete_group(group, dry_run=dry_run))
    if cluster.form is Format.JSONL:
        write_lines([{"group": group, "deleted": not dry_run}])
    elif not dry_run:
        typer.echo(f"{group}: deleted")
    if dry_run:
        write_note(f"{group}: nothing was changed")


async def _described(admin: AsyncAdmin, group: str) -> tuple[GroupDescription, list[QueueLag]]:
    """A group that is only configured, or was just deleted, has nothing to show."""
    try:
        return await admin.describe_group(group), await admin.lag(group)
    except UnknownGroupError:
        return GroupDescription(group, "empty", 0, ()), []


async def group_work(admin: AsyncWorkAdmin, group: str) -> GroupWork | None:
    """What a work queue has under way; None where there is none, or the node knows of none."""
    try:
        return await admin.group_work(group)
    except UnknownGroupError:
        return None
    except InvalidArgumentError as error:
        if error.reason == NOT_KNOWN_THERE:
            return None
        raise


def _only(wanted: dict[Queue, int], queue_ids: Sequence[int]) -> dict[Queue, int]:
    """The places in the queues that are named; all if none is. Raises UnknownQueueError."""
    if not queue_ids:
        return wanted
    missing = sorted(set(queue_ids) - {queue_id for _, queue_id in wanted})
    if missing:
        raise UnknownQueueError(f"no topic here has a queue {missing[0]}", field="queue_id")
    return {queue: place for queue, place in wanted.items() if queue[1] in queue_ids}


def _row(description: GroupDescription, lags: Sequence[QueueLag]) -> dict[str, Any]:
    return {
        "group": description.group,
        "kind": description.kind,
        "state": description.state,
        "members": len(description.members),
        "topics": " ".join(sorted({each.topic for each in lags})),
        "lag": sum(each.messages for each in lags),
        "lag_seconds": round(max((each.seconds for each in lags), default=0.0), 3),
    }


def _member_rows(description: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "client_id": each.client_id,
            "host": each.host,
            "instance_id": each.instance_id,
            "member_id": each.member_id,
            "assigned": queues_text(each.assigned),
            "heard_seconds_ago": each.heard_ms_ago / 1000,
        }
        for each in description.members
    ]


def _queue_rows(description: GroupDescription, lags: Iterable[QueueLag]) -> list[dict[str, Any]]:
    owners = {queue: each.client_id for each in description.members for queue in each.assigned}
    return [
        {
            "topic": each.topic,
            "queue_id": each.queue_id,
            "client_id": owners.get((each.topic, each.queue_id)),
            "committed_offset": each.committed,
            "max_offset": each.end,
            "lag": each.messages,
            "lag_seconds": round(each.seconds, 3),
        }
        for each in lags
    ]


def _change_row(change: OffsetChange) -> dict[str, Any]:
    return {
        "topic": change.topic,
        "queue_id": change.queue_id,
        "before": change.before,
        "after": change.after,
        "shift": None if change.before is None else change.after - change.before,
    }
