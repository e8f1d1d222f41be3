"""`tandemlog dlq …`: the dead letters of a group.

list     what became a dead letter, from where, after how many attempts, and why
show     one of them: every field, the body
resend   a copy goes to the topic that it came from
purge    forget them; their records go with their log files
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.consume.work.work_admin import AsyncWorkAdmin, DeadLetter, ResentLetter

from ..output.message_formats import writer_of
from ..output.tables import Format, write_lines, write_note, write_rows
from ..output.work_tables import LETTER_COLUMNS, letter_row
from ..shared.command import new_app
from ..shared.completion import complete_group
from ..shared.exit_codes import FAULT
from ..shared.failures import CommandError
from ..shared.online import ClusterOptions, run_work_admin
from ..shared.options import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, DryRun, Endpoint, Timeout, Yes

RESENT_COLUMNS = ("queue_offset", "topic", "refusal")

app = new_app("List, show, send again and purge the dead letters of a group.")

Group = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group)]
Numbers = Annotated[
    list[int] | None,
    typer.Argument(
        metavar="[NUMBER]…", min=0, help="Their numbers: queue_offset in `dlq list`.",
        show_default=False,
    ),
]  # fmt: skip
All = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]


@app.command("list")
def list_command(
    group: Group,
    first: Annotated[
        int, typer.Option("--first", metavar="N", min=0, help="Begin with this number.")
    ] = 0,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="Show at most this many. [default: all]")
    ] = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """List the dead letters of a group, the oldest first: origin, attempts, and the last error."""

    async def find(admin: AsyncWorkAdmin) -> list[DeadLetter]:
        return await admin.dead_letters(group, first=first, count=maximum)

    write_rows(map(letter_row, cluster.ask_work(find)), cluster.form, LETTER_COLUMNS)


@app.command("show")
def show_command(
    group: Group,
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", min=0, help="Its queue_offset in `dlq list`.")
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="table, jsonl, raw (the body alone), text, json, or a template as of `pull`.",
        ),
    ] = "table",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show one dead letter: its message with all properties."""
    write = writer_of(form)

    async def read(admin: AsyncWorkAdmin) -> ReceivedMessage:
        return await admin.dead_letter(group, number)

    write([run_work_admin(endpoint, timeout, read)])


@app.command("resend")
def resend_command(
    group: Group,
    numbers: Numbers = None,
    everything: All = False,
    dry_run: DryRun = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Send dead letters to the topics that they came from, where they are new messages.

    They are no dead letters any more. Other groups that read these topics get them too. Exit code
    1 means that some could not be sent.
    """
    wanted = _wanted(numbers, everything=everything)

    async def send(admin: AsyncWorkAdmin) -> list[ResentLetter]:
        return await admin.resend_dead_letters(group, wanted, dry_run=dry_run)

    letters = cluster.ask_work(send)
    rows = [
        {"queue_offset": each.queue_offset, "topic": each.topic, "refusal": each.refusal or None}
        for each in letters
    ]
    write_rows(rows, cluster.form, RESENT_COLUMNS)
    if dry_run:
        write_note(f"{group}: nothing was sent")
    if refused := sum(bool(each.refusal) for each in letters):
        raise CommandError(f"{refused} of {len(letters)} dead letters were not sent", FAULT)


@app.command("purge")
def purge_command(
    group: Group,
    before: Annotated[
        int | None,
        typer.Option(
            "--before", metavar="N", min=0, help="Only those with numbers below N. [default: all]"
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    cluster: ClusterOptions,
) -> None:
    """Forget dead letters. What is forgotten cannot be sent again."""

    def purge(*, dry_run: bool) -> int:
        return cluster.ask_work(
            lambda admin: admin.purge_dead_letters(group, before, dry_run=dry_run)
        )

    count = purge(dry_run=True)
    if count and not (dry_run or yes):
        typer.confirm(f"Forget {count} dead letters of group {group}?", abort=True, err=True)
    if not dry_run:
        count = purge(dry_run=False)
    if cluster.form is Format.JSONL:
        write_lines([{"group": group, "count": count, "purged": not dry_run}])
    elif not dry_run:
        typer.echo(f"{group}: {count} dead letters forgotten")
    if dry_run:
        write_note(f"{group}: {count} dead letters; nothing was changed")


def _wanted(numbers: Sequence[int] | None, *, everything: bool) -> Sequence[int] | None:
    """None: all. Raises typer.BadParameter."""
    if bool(numbers) == everything:
        raise typer.BadParameter("give the numbers of dead letters, or --all")
    return numbers or None
