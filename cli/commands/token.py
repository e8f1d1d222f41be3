"""`tandemlog token`: tokens of callers and access keys of RocketMQ clients, in an access file."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from tandemlog_server.node.access.access_editing import AccessEditError, Grant, edited, read_access
from tandemlog_server.node.access.new_tokens import hash_of, new_access_key, new_token
from tandemlog_server.node.private_files import write_secret

from ..output.tables import Format, write_rows
from ..shared.command import new_app
from ..shared.exit_codes import NOT_FOUND, STORE
from ..shared.failures import CommandError, ending_with
from ..shared.options import FormatOption

app = new_app("Add, list and revoke the tokens and access keys in an access file.")

SHOWN = 12
"""Of a hash: enough to tell tokens apart."""
NO_RIGHTS = "tandemlog: {} has no rights yet: give --read, --write …"
OTHERS = 0o077
NAME = re.compile(r"^[A-Za-z0-9._@-]{1,64}$")
COLUMNS = (
    "name",
    "tokens",
    "access_keys",
    "certificates",
    "read",
    "write",
    "consume",
    "admin",
    "node",
)

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
    _check_name(name)
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
                typer.echo(NO_RIGHTS.format(name), err=True)
            if out is not None:
                write_secret(out, token)
        if out is None:
            typer.echo(token)


@app.command("new-key")
def new_key(
    name: Name,
    access: Access,
    read: Annotated[list[str] | None, _patterns("--read", "Topics that it may read")] = None,
    write: Annotated[list[str] | None, _patterns("--write", "Topics that it may write")] = None,
    consume: Annotated[
        list[str] | None, _patterns("--consume", "Groups in which it may consume")
    ] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="It may do everything: what mqadmin asks too.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write them, readable by its owner only. [default: stdout]",
        ),
    ] = None,
) -> None:
    """Make an access key and a secret by which RocketMQ's clients sign as NAME, and print them.

    They are printed as `accessKey` and `secretKey`, in the form of mqadmin's tools.yml. The access
    file has the secret too, since no signature can be checked without it: keep the file readable
    by the nodes alone. An identity that exists gets one more key, and the rights that are given.
    """
    _check_name(name)
    grant = Grant(tuple(read or ()), tuple(write or ()), tuple(consume or ()), admin=admin)
    with ending_with(STORE, AccessEditError):
        key = new_access_key(name)
        with edited(access) as file:
            there = file.add_key(name, key, grant)
            if not there and grant == Grant():
                typer.echo(NO_RIGHTS.format(name), err=True)
            if out is not None:
                write_secret(out, key.tools_yml())
        if access.stat().st_mode & OTHERS:
            typer.echo(
                f"tandemlog: {access} has secrets, and others than its owner may read it: "
                f"chmod 600 {access}",
                err=True,
            )
        if out is None:
            typer.echo(key.tools_yml())


@app.command("revoke-key")
def revoke_key(
    name: Name,
    access: Access,
    key: Annotated[
        str,
        typer.Option("--key", metavar="KEY", help="Only this one, as `token list` shows it."),
    ] = "",
) -> None:
    """Take access keys of NAME out of the access file; its rights and tokens stay there."""
    with ending_with(STORE, AccessEditError):
        with edited(access) as file:
            count = file.revoke_keys(name, key)
        typer.echo(f"{count} of {name} revoked")
        if not count:
            raise CommandError(f"{name} had no access key to revoke", NOT_FOUND)


@app.command("list")
def list_tokens(access: Access, form: FormatOption = Format.TABLE) -> None:
    """Show the identities of an access file: beginnings of their tokens' hashes, access keys
    without their secrets, and rights."""
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
    """Take tokens of NAME out of the access file; its rights and access keys stay there.

    Nodes refuse a revoked token within seconds, in streams that are open too.
    """
    with ending_with(STORE, AccessEditError):
        with edited(access) as file:
            count = file.revoke(name, token.removeprefix("sha256:"), keep_newest=but_newest)
        typer.echo(f"{count} of {name} revoked")
        if not count:
            raise CommandError(f"{name} had no token to revoke", NOT_FOUND)


def _check_name(name: str) -> None:
    if not NAME.match(name):
        raise typer.BadParameter(f"NAME must be 1 to 64 of A-Z a-z 0-9 . _ @ -, not {name!r}")


def _row(identity: dict[str, Any], form: Format) -> dict[str, Any]:
    tokens = [str(each).removeprefix("sha256:")[:SHOWN] for each in identity.get("tokens", [])]
    keys = [str(each.get("key")) for each in identity.get("access_keys", [])]
    row = {"name": identity.get("name"), "tokens": tokens, "access_keys": keys}
    row |= {key: identity.get(key, []) for key in ("certificates", "read", "write", "consume")}
    if form is Format.TABLE:
        row = {key: " ".join(map(str, v)) if isinstance(v, list) else v for key, v in row.items()}
    return {**row, "admin": bool(identity.get("admin", False)), "node": identity.get("node", "")}
