"""`tandemlog topic`: make, list, describe and delete topics.

An update changes only the named values. It is checked against the master's tables, since a slave
gets a change a moment later.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin, TopicInfo
from tandemlog.cluster.topology import ReadFrom
from tandemlog.errors import TopicExistsError
from tandemlog.format.constants import (
    DEFAULT_QUEUES,
    PERM_READ,
    PERM_WRITE,
    client_topic_fault,
    is_system_topic,
)
from tandemlog.format.words import counted

from ..output.tables import Format, date_text, write_lines, write_note, write_rows, write_table
from ..shared.command import new_app
from ..shared.completion import TopicArgument
from ..shared.exit_codes import REFUSED, USAGE
from ..shared.failures import CommandError
from ..shared.online import ClusterOptions, all_ranges
from ..shared.options import Timeout, named_values

MAX_QUEUES = 65_536
_PERMS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE}
COLUMNS = ("topic", "read_queues", "write_queues", "perm", "order", "attributes")
QUEUE_COLUMNS = {
    "queue_id": "queue",
    "min_offset": "min",
    "max_offset": "max",
    "messages": "messages",
    "oldest": "oldest",
    "newest": "newest",
}
"""Of the table of queues, with their heads: with numbers of eight digits it has 80 characters."""
SECONDS = len("2026-01-01T00:00:00")

app = new_app("Create, list, describe and delete topics.")

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done without changing anything.")
]


@dataclass(frozen=True, slots=True)
class PatientOptions(ClusterOptions):
    """Of what is done first with a cluster, which may still be starting or electing."""

    timeout: Timeout = 30.0


@app.command("create")
def create_command(
    name: TopicArgument,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues",
            "-q",
            min=1,
            max=MAX_QUEUES,
            help=f"Number of queues. [default: {DEFAULT_QUEUES}; with --update: unchanged]",
        ),
    ] = None,
    perm: Annotated[
        str | None,
        typer.Option(
            "--perm",
            help="Permission of the topic: rw, r or w. [default: rw; with --update: unchanged]",
        ),
    ] = None,
    order: Annotated[
        bool | None,
        typer.Option(
            "--order/--no-order",
            help="Mark the topic as ordered, or not. [default: not ordered; with --update: "
            "unchanged]",
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            metavar="NAME=VALUE",
            help="Set an attribute of the topic; may be repeated. With --update, the other "
            "attributes stay as they are.",
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Change an existing topic; whatever is not given stays as it is."
        ),
    ] = False,
    dry_run: DryRun = False,
    *,
    cluster: PatientOptions,
) -> None:
    """Create a topic, or change one with --update, and print it.

    A queue that holds messages cannot be removed: the command then ends with exit code 5.
    """
    if perm is not None and perm not in _PERMS:
        raise typer.BadParameter(f"--perm must be rw, r or w, not {perm!r}")
    bits = None if perm is None else _PERMS[perm]
    pairs = named_values("--attribute", attributes)

    async def create(admin: AsyncAdmin) -> TopicInfo:
        _check_name(name, new=not update)
        if update:
            return await change(admin)
        exists = CommandError(f"topic {name!r} exists; change it with --update", REFUSED)
        if dry_run:
            if any(topic.name == name for topic in await admin.topics()):
                raise exists
            return TopicInfo(name).changed(queues, perm=bits, order=order, attributes=pairs)
        try:
            return await admin.create_topic(name, queues, perm=bits, order=order, attributes=pairs)
        except TopicExistsError:
            raise exists from None

    async def change(admin: AsyncAdmin) -> TopicInfo:
        topic = await admin.topic(name)
        if queues is not None and queues < topic.read_queues:
            await _check_no_message_is_lost(admin, name, queues)
        if dry_run:
            return topic.changed(queues, perm=bits, order=order, attributes=pairs)
        return await admin.create_topic(
            name, queues, perm=bits, order=order, attributes=pairs, update=True
        )

    topic = cluster.ask(create, ReadFrom.MASTER, starting=True)
    write_rows([_row(topic)], cluster.form, COLUMNS)
    if dry_run:
        write_note(f"{name}: nothing was changed")


@app.command("list")
def list_command(
    system: Annotated[
        bool, typer.Option("--all", "-a", help="Include the topics that RocketMQ keeps for itself.")
    ] = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """List the topics."""
    topics = cluster.ask(lambda admin: admin.topics())
    rows = [_row(topic) for topic in topics if system or not is_system_topic(topic.name)]
    write_rows(rows, cluster.form, COLUMNS)


@app.command("describe")
def describe_command(name: TopicArgument, *, cluster: ClusterOptions) -> None:
    """Show a topic and the messages in each of its queues.

    With --format jsonl, the output is one object that contains everything.
    """

    async def describe(admin: AsyncAdmin) -> tuple[TopicInfo, list[dict[str, Any]]]:
        topic = await admin.topic(name)
        rows = [
            {
                "topic": name,
                "queue_id": each.queue_id,
                "min_offset": each.min_offset,
                "max_offset": each.max_offset,
                "messages": each.max_offset - each.min_offset,
                "min_timestamp": each.min_timestamp,
                "max_timestamp": each.max_timestamp,
            }
            for each in await all_ranges(admin, name, max(topic.read_queues, topic.write_queues))
        ]
        return topic, rows

    topic, queues = cluster.ask(describe)
    if cluster.form is Format.JSONL:
        write_lines([{**_row(topic), "queues": queues}])
    else:
        write_table([_row(topic)], COLUMNS)
        write_table(map(_queue_row, queues), tuple(QUEUE_COLUMNS), QUEUE_COLUMNS)


@app.command("delete")
def delete_command(
    name: TopicArgument, dry_run: DryRun = False, *, cluster: ClusterOptions
) -> None:
    """Delete a topic.

    It accepts no more messages; those in the log are deleted when they expire. A topic of the same
    name that is created before then has them again.
    """

    async def delete(admin: AsyncAdmin) -> TopicInfo:
        if is_system_topic(name):
            _check_name(name, new=False)
        topic = await admin.topic(name)
        if not dry_run:
            await admin.delete_topic(name)
        return topic

    topic = cluster.ask(delete)
    if cluster.form is Format.JSONL:
        write_lines([{**_row(topic), "deleted": not dry_run}])
    elif dry_run:
        write_table([_row(topic)], COLUMNS)
    else:
        typer.echo(f"{name}: deleted")
    if dry_run:
        write_note(f"{name}: nothing was changed")


def _check_name(name: str, *, new: bool) -> None:
    """Raises CommandError for what a node refuses, so that a dry run says it too."""
    fault = client_topic_fault(name, new=new)
    if fault is not None:
        raise CommandError(f"topic {name!r}: {fault}", USAGE)


async def _check_no_message_is_lost(admin: AsyncAdmin, name: str, queues: int) -> None:
    """Raises CommandError if a queue that `queues` queues leave out holds messages: they would stay
    in the log, and no client could pull them."""
    holding = {
        each.queue_id: each.max_offset - each.min_offset
        for each in await admin.ranges(name)
        if each.queue_id >= queues and each.max_offset > each.min_offset
    }
    if holding:
        last = max(holding)
        raise CommandError(
            f"topic {name!r}: queue {last} holds {counted(holding[last], 'message')} that could "
            f"not be pulled with {counted(queues, 'queue')}; "
            f"keep {last + 1} or more until they expire",
            REFUSED,
        )


def _queue_row(row: dict[str, Any]) -> dict[str, Any]:
    """For the table: times without milliseconds."""
    oldest, newest = (date_text(row[f"{end}_timestamp"])[:SECONDS] for end in ("min", "max"))
    return {**row, "oldest": oldest, "newest": newest}


def _row(topic: TopicInfo) -> dict[str, Any]:
    names = {value: name for name, value in _PERMS.items()}
    return {
        "topic": topic.name,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "perm": names.get(topic.perm & (PERM_READ | PERM_WRITE), "-"),
        "order": topic.order,
        "attributes": dict(topic.attributes),
    }
