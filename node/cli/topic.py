"""`tandemlog topic`: make, list, describe and delete topics."""

from typing import Annotated, Any

import typer

from tandemlog.admin import PERM_READ, PERM_WRITE, AsyncAdmin, TopicInfo
from tandemlog.format.constants import is_system_topic, topic_fault

from .command import new_app
from .exit_codes import USAGE, epilog
from .failures import CommandError, one_line_errors
from .online import run_admin
from .options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, Endpoint, FormatOption, Timeout
from .output import Format, write_rows

DEFAULT_QUEUES = 4
MAX_QUEUES = 65_536
_PERMS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE}
COLUMNS = ("topic", "read_queues", "write_queues", "perm", "order", "attributes")
QUEUE_COLUMNS = (
    "topic",
    "queue_id",
    "min_offset",
    "max_offset",
    "messages",
    "min_timestamp",
    "max_timestamp",
)

app = new_app("Make, list, describe and delete topics.")

Name = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, change nothing.")]


@app.command("create", epilog=epilog())
def create_command(
    name: Name,
    queues: Annotated[
        int, typer.Option("--queues", "-q", min=1, max=MAX_QUEUES, help="Number of queues.")
    ] = DEFAULT_QUEUES,
    perm: Annotated[str, typer.Option("--perm", help="rw, r or w.")] = "rw",
    order: Annotated[bool, typer.Option("--order", help="Mark it as ordered.")] = False,
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="May be given several times."),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Change an existing topic.")] = False,
    dry_run: DryRun = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Make a topic, or change one with --update; prints it."""
    if perm not in _PERMS:
        raise typer.BadParameter(f"--perm must be rw, r or w, not {perm!r}")
    pairs = dict(_pair(text) for text in attributes or [])

    async def create(admin: AsyncAdmin) -> TopicInfo:
        fault = topic_fault(name)
        if fault is not None:
            raise CommandError(f"topic {name!r}: {fault}", USAGE)
        if dry_run:
            held = {topic.name for topic in await admin.topics()}
            if (name in held) != update:
                known = "exists" if name in held else "does not exist"
                raise CommandError(f"topic {name!r} {known}", USAGE)
            return TopicInfo(name, queues, queues, _PERMS[perm], order, pairs)
        return await admin.create_topic(
            name, queues, perm=_PERMS[perm], order=order, attributes=pairs, update=update
        )

    with one_line_errors():
        topic = run_admin(endpoint, timeout, create)
        write_rows([_row(topic)], form, COLUMNS)


@app.command("list", epilog=epilog())
def list_command(
    system: Annotated[
        bool, typer.Option("--all", "-a", help="Those that RocketMQ keeps for itself too.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List the topics."""
    with one_line_errors():
        topics = run_admin(endpoint, timeout, lambda admin: admin.topics())
        rows = [_row(topic) for topic in topics if system or not is_system_topic(topic.name)]
        write_rows(rows, form, COLUMNS)


@app.command("describe", epilog=epilog())
def describe_command(
    name: Name,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show a topic and what its queues hold; with --format jsonl one object with all of it."""

    async def describe(admin: AsyncAdmin) -> tuple[TopicInfo, list[dict[str, Any]]]:
        topic = await admin.topic(name)
        ranges = {each.queue_id: each for each in await admin.ranges(name)}
        rows = []
        for queue_id in range(
            max(topic.read_queues, topic.write_queues, max(ranges, default=-1) + 1)
        ):
            each = ranges.get(queue_id)
            rows.append(
                {
                    "topic": name,
                    "queue_id": queue_id,
                    "min_offset": each.min_offset if each else 0,
                    "max_offset": each.max_offset if each else 0,
                    "messages": each.max_offset - each.min_offset if each else 0,
                    "min_timestamp": each.min_timestamp if each else -1,
                    "max_timestamp": each.max_timestamp if each else -1,
                }
            )
        return topic, rows

    with one_line_errors():
        topic, queues = run_admin(endpoint, timeout, describe)
        if form is Format.JSONL:
            write_rows([{**_row(topic), "queues": queues}], form)
        else:
            write_rows([_row(topic)], form, COLUMNS)
            write_rows(queues, form, QUEUE_COLUMNS)


@app.command("delete", epilog=epilog())
def delete_command(
    name: Name,
    dry_run: DryRun = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete a topic: it takes no more messages, and those in the log go when they expire."""

    async def delete(admin: AsyncAdmin) -> TopicInfo:
        topic = await admin.topic(name)
        if not dry_run:
            await admin.delete_topic(name)
        return topic

    with one_line_errors():
        topic = run_admin(endpoint, timeout, delete)
        write_rows([_row(topic)], form, COLUMNS)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--attribute must be NAME=VALUE, not {text!r}")
    return name, value


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
