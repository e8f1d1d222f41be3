"""`tandemlog scan`: the records of a log in its order, without a node.

a folder of a store     its commit log files
an archive or a backup  a folder, s3://, gs://, hdfs://: only the blocks that may have what is asked
node:HOST:PORT          the log of a running node, up to its confirm offset
"""

import time
from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import typer

from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.format.words import counted
from tandemlog.logs.job_errors import OnCorruption
from tandemlog.logs.jobs.scan import READERS, Damage, ScanOptions, scan
from tandemlog.logs.reading.log_source import open_store
from tandemlog.logs.reading.selection import Selection
from tandemlog.logs.reading.span_scan import Piece

from ..output.message_formats import writer_of
from ..output.tables import write_note
from ..shared.command import new_app
from ..shared.exit_codes import FAULT
from ..shared.jobs import OnCorruptionOption, job_failures
from ..shared.times import FORMS, parse_time_ms

app = new_app()


@app.command("scan")
def scan_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of a store or of its commit log; an archive or a backup: a folder, s3://, "
            "gs:// or hdfs:// (fsspec); or node:HOST:PORT for the log of a running node.",
        ),
    ],
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help=f"Only what was stored at this time or later: {FORMS}."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only what was stored by this time."),
    ] = None,
    from_offset: Annotated[
        int,
        typer.Option(
            "--from-offset", metavar="N", min=0, help="Begin at this log offset, in bytes."
        ),
    ] = 0,
    to_offset: Annotated[
        int,
        typer.Option(
            "--to-offset",
            metavar="N",
            min=0,
            help="End with the record that begins before this log offset. 0: the log's end.",
        ),
    ] = 0,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after this many messages.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="table|jsonl|raw|text|json|TEMPLATE",
            help="Output format, as of `tandemlog pull`.",
        ),
    ] = "table",
    readers: Annotated[
        int, typer.Option("--readers", min=1, max=64, help="Parts of the log to read at a time.")
    ] = READERS,
    on_corruption: OnCorruptionOption = OnCorruption.FAIL,
) -> None:
    """Read the messages of a log in the order in which they were stored, without a node.

    The log is that of all topics, those of the node's own services too. Of an archive, objects and
    blocks are left out whose store times or topics are not asked for. Bodies are decompressed.
    """
    if to_offset and to_offset < from_offset:
        raise typer.BadParameter(f"{to_offset} is below --from-offset", param_hint="--to-offset")
    write = writer_of(form)
    options = ScanOptions(
        _selection(topics or (), since, until),
        from_offset,
        to_offset,
        on_corruption,
        readers,
    )
    faults: list[Damage] = []
    with job_failures():
        windows = scan(open_store(source), options, _messages, faults.append)
        left = maximum
        for messages in windows:
            taken = messages if left is None else list(islice(messages, left))
            write(taken)
            if left is not None:
                left -= len(taken)
                if not left:
                    break
        windows.close()
    for fault in faults:
        write_note(f"skipped up to {fault.end}: {fault.reason}")
    if faults:
        write_note(f"{counted(len(faults), 'damaged place')} skipped")
        raise typer.Exit(FAULT)


def _selection(topics: Iterable[str], since: str | None, until: str | None) -> Selection:
    now_ms = int(time.time() * 1000)
    selection = Selection(frozenset(topics))
    since_ms = selection.since_ms if since is None else parse_time_ms(since, now_ms)
    before_ms = selection.before_ms if until is None else parse_time_ms(until, now_ms) + 1
    if before_ms <= since_ms:
        raise typer.BadParameter("the time is before --since", param_hint="--until")
    return Selection(frozenset(topics), since_ms, before_ms)


def _messages(piece: Piece) -> list[ReceivedMessage]:
    """The window's records in bytes of their own: the window is used again."""
    first = int(piece.walk.positions[0])
    records = piece.data[first : int(piece.walk.positions[-1] + piece.walk.sizes[-1])].tobytes()
    starts = (piece.walk.positions - first).tolist()
    return [
        ReceivedMessage(records, start, size)
        for start, size in zip(starts, piece.walk.sizes.tolist(), strict=True)
    ]
