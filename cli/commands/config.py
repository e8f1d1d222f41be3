"""`tandemlog config`: the settings of running nodes, shown and changed."""

from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.node_details import NodeSetting, SettingChange

from ..cluster.chosen_nodes import NodeOption, each_node
from ..output.tables import Format, write_lines, write_table
from ..shared.command import new_app
from ..shared.exit_codes import epilog
from ..shared.failures import one_line_errors
from ..shared.online import run_admin
from ..shared.options import (
    DEFAULT_ENDPOINT,
    DEFAULT_TIMEOUT_S,
    DryRun,
    Endpoint,
    FormatOption,
    Timeout,
)

app = new_app("Show and change the settings of running nodes.")

COLUMNS = ("node", "key", "value", "source", "change", "next")
TITLES = {"change": "a change counts", "next": "after a restart"}


@app.command("show", epilog=epilog())
def show(
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]...",
            help="Only these keys, or the keys of these sections: store.retention.",
            show_default=False,
        ),
    ] = None,
    node: NodeOption = "",
    changed: Annotated[
        bool, typer.Option("--changed", help="Only keys that do not have their default.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show what each node runs with, and where each value came from.

    The source is the default, the node's file, or a variable of its environment. The column "after
    a restart" has a value if the file was changed since the node started.
    """

    async def work(admin: AsyncAdmin) -> list[dict[str, Any]]:
        rows = []
        for node_id in await each_node(admin, node):
            rows += [
                _row(node_id, each)
                for each in await admin.settings(node_id)
                if _is_wanted(each, keys or [], changed=changed)
            ]
        return rows

    with one_line_errors():
        rows = run_admin(endpoint, timeout, work)
        if form is Format.JSONL:
            write_lines(rows)
        else:
            write_table(rows, COLUMNS, TITLES)


@app.command("set", epilog=epilog())
def set_value(
    key: Annotated[str, typer.Argument(help="The key: store.retention.reserved_hours.")],
    value: Annotated[
        str,
        typer.Argument(help="The value, as TOML or bare text. Not with --unset.", show_default=""),
    ] = "",
    node: NodeOption = "",
    unset: Annotated[
        bool, typer.Option("--unset", help="Take the key out of the file: its default counts.")
    ] = False,
    dry_run: DryRun = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    form: FormatOption = Format.TABLE,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Change a setting of every node, or of one: in its file, and at once where that is possible.

    The node checks its whole configuration with the new value first, and refuses what would keep
    it from starting. `config show` says which keys count at once and which from a restart on
    (`tandemlog restart`).
    """

    async def work(admin: AsyncAdmin) -> list[SettingChange]:
        node_ids = await each_node(admin, node)
        for node_id in node_ids:  # all of them first: no half of a cluster is changed
            await admin.change_setting(key, value, node_id, unset=unset, dry_run=True)
        return [
            await admin.change_setting(key, value, node_id, unset=unset, dry_run=dry_run)
            for node_id in node_ids
        ]

    with one_line_errors():
        if bool(value) == unset:
            raise typer.BadParameter("give a value, or --unset")
        changes = run_admin(endpoint, timeout, work)
        if form is Format.JSONL:
            write_lines(
                {
                    **_row(each.node_id, each.setting),
                    "before": each.before,
                    "needs_restart": each.needs_restart,
                    "dry_run": dry_run,
                }
                for each in changes
            )
            return
        for each in changes:
            typer.echo(_text(each, dry_run=dry_run))


def _row(node_id: str, setting: NodeSetting) -> dict[str, Any]:
    return {
        "node": node_id,
        "key": setting.key,
        "value": setting.value,
        "default": setting.default,
        "source": setting.source,
        "change": "at once" if setting.live else "after a restart",
        "next": setting.next_value or None,
    }


def _is_wanted(setting: NodeSetting, keys: list[str], *, changed: bool) -> bool:
    if changed and setting.value == setting.default and not setting.next_value:
        return False
    return not keys or any(setting.key == key or setting.key.startswith(f"{key}.") for key in keys)


def _text(change: SettingChange, *, dry_run: bool) -> str:
    setting = change.setting
    after = setting.next_value or setting.value
    would = "would change" if dry_run else "changed"
    when = "after a restart of the node" if change.needs_restart else "at once"
    if change.before == after:
        return f"{change.node_id}: {setting.key} is {after} already"
    return f"{change.node_id}: {would} {setting.key} from {change.before} to {after}, {when}"
