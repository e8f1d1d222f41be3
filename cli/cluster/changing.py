"""A change of the cluster that is done at once: pause, resume, members."""

import typer

from tandemlog.cluster.elections import ClusterChange

from ..output.tables import Format, write_lines
from ..shared.online import run_admin
from .elections_table import source


def change_now(
    endpoint: str,
    timeout_s: float,
    form: Format,
    change: ClusterChange,
    texts: tuple[str, str],
    node_id: str = "",
    *,
    force: bool = False,
) -> None:
    """Do it and say what became of it; `texts`: it was changed, it was so already."""
    done = run_admin(
        endpoint, timeout_s, lambda admin: admin.change_cluster(change, node_id, force=force)
    )
    if form is Format.TABLE:
        text = texts[0] if done.changed else texts[1]
        typer.echo(f"{text} {source(done.revision, done.answered_by)}")
        return
    row = {
        "action": change.name.lower(),
        "node": node_id,
        "changed": done.changed,
        "answered_by": done.answered_by,
        "revision": done.revision,
    }
    write_lines([row])
