"""`tandemlog token`: tokens of callers in an access file."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog_server.node.access.access_editing import AccessEditError, Grant, edited, read_access
from tandemlog_server.node.access.new_tokens import hash_of, new_token
from tandemlog_server.node.private_files import write_secret

from ..output.tables import Format, write_rows
from ..shared.command import new_app
from ..shared.exit_codes import NOT_FOUND, STORE
from ..shared.failures import CommandError, ending_with
from ..shared.options import FormatOption

app = new_app("Add, list and revoke the tokens in an access file.")

SHOWN = 12
"""Of a hash: enough to tell tokens apart."""
NAME = re.compile(r"^[A-Za-z0-9._@-]{1,64}$")
COLUMNS = ("name", "tokens", "certificates", "read", "write", "consume", "admin", "node")

Access = Annotated[
    Path,
    typer.Option(
        "--access", metavar="FILE", help="The access file of the nodes: security.access_file."
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The identity.")]


def _patterns(flag: str, what: str) -> Any:
    return typer.Option(
        flag, metavar="PATTERN", help=f"{what}, with * and ? as in file names; may be repeated."
    )


@app.command("new")
def new(
    name: Name,
    access: Access,
    read: Annotated[list[str] | None, _patterns("--read", "Topics that it may read")] = None,
    write: Annotated[list[str] | None, _patterns("--write", "Topics that it may write")] = None,
    consume: Annotated[
        list[str] | None, _patterns("--consume", "Groups whose offsets it may commit")
    ] = None,
    certificate: Annotated[
        list[str] | None,
        typer.Option(
            "--certificate",
            metavar="NAME",
            help="Client certificate that names it too; may be repeated.",
        ),
    ] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="It may do everything: every administrative call too.")
    ] = False,
    node: Annotated[
        str, typer.Option("--node", metavar="ID", help="It may replicate as this node.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write the token, readable by its owner only. [default: stdout]",
        ),
    ] = None,
) -> None:
    """Make a token for NAME and print it, once: the access file has only its hash.

    An identity that exists gets one more token, and the rights that are given. So a token is
    replaced without a gap: make the new one, hand it over, revoke the old one (--but-newest).
    """
    if not NAME.match(name):
        raise typer.BadParameter(f"NAME must be 1 to 64 of A-Z a-z 0-9 . _ @ -, not {name!r}")
    grant = Grant(
        tuple(read or ()),
        tuple(write or ()),
        tuple(consume or ()),
        tuple(certificate or ()),
        admin,
        node,
    )
    with ending_with(STORE, AccessEditError):
        token = new_token()
        with edited(access) as file:
            there = file.add_token(name, hash_of(token), grant)
            if not there and grant == Grant():
                typer.echo(f"tandemlog: {name} has no rights yet: give --read, --write …", err=True)
            if out is not None:
                write_secret(out, token)
        if out is None:
            typer.echo(token)


@app.command("list")
def list_tokens(access: Access, form: FormatOption = Format.TABLE) -> None:
    """Show the identities of an access file: beginnings of their tokens' hashes, and rights."""
    with ending_with(STORE, AccessEditError):
        rows = [_row(each, form) for each in read_access(access).identities()]
        write_rows(rows, form, COLUMNS)


@app.command("revoke")
def revoke(
    name: Name,
    access: Access,
    token: Annotated[
        str,
        typer.Option(
            "--token",
            metavar="BEGINNING",
            help="Only the token whose hash begins so, as `token list` shows it.",
        ),
    ] = "",
    but_newest: Annotated[
        bool, typer.Option("--but-newest", help="Leave the token that was added last.")
    ] = False,
) -> None:
    """Take tokens of NAME out of the access file; its rights stay there.

    Nodes refuse a revoked token within seconds, in streams that are open too.
    """
    with ending_with(STORE, AccessEditError):
        with edited(access) as file:
            count = file.revoke(name, token.removeprefix("sha256:"), keep_newest=but_newest)
        typer.echo(f"{count} of {name} revoked")
        if not count:
            raise CommandError(f"{name} had no token to revoke", NOT_FOUND)


def _row(identity: dict[str, Any], form: Format) -> dict[str, Any]:
    tokens = [str(each).removeprefix("sha256:")[:SHOWN] for each in identity.get("tokens", [])]
    row = {"name": identity.get("name"), "tokens": tokens}
    row |= {key: identity.get(key, []) for key in ("certificates", "read", "write", "consume")}
    if form is Format.TABLE:
        row = {key: " ".join(map(str, v)) if isinstance(v, list) else v for key, v in row.items()}
    return {**row, "admin": bool(identity.get("admin", False)), "node": identity.get("node", "")}
