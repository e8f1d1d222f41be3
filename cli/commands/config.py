"""`tandemlog config`: the settings of running nodes, shown and changed."""

from typing import Annotated, Any

import typer

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.node_details import NodeSetting, SettingChange

from ..output.tables import Format, write_lines, write_rows, write_texts
from ..shared.command import new_app
from ..shared.online import ClusterOptions, NodeOption, each_node
from ..shared.options import DryRun

app = new_app("Show and change the settings of running nodes.")

COLUMNS = ("node", "key", "value", "source", "change", "next")
TITLES = {"change": "a change counts", "next": "after a restart"}


@app.command("show")
def show(
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]...",
            help="Only these keys, or the keys of these sections: store.retention.",
        ),
    ] = None,
    node: NodeOption = "",
    changed: Annotated[
        bool, typer.Option("--changed", help="Only keys that do not have their default.")
    ] = False,
    *,
    cluster: ClusterOptions,
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

    write_rows(cluster.ask(work), cluster.form, COLUMNS, TITLES)


@app.command("set")
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
    *,
    cluster: ClusterOptions,
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

    if bool(value) == unset:
        raise typer.BadParameter("give a value, or --unset")
    changes = cluster.ask(work)
    if cluster.form is Format.TABLE:
        write_texts(_text(each, dry_run=dry_run) for each in changes)
        return
    write_lines(
        {
            **_row(each.node_id, each.setting),
            "before": each.before,
            "needs_restart": each.needs_restart,
            "dry_run": dry_run,
        }
        for each in changes
    )


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
