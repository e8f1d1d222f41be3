"""The picture of a cluster on a terminal: nothing is cut off, whatever its width."""

import io

import pytest
from rich.console import Console

from tandemlog.cluster.topology import NodeInfo, Topology
from tandemlog_server.cli.cluster.nodes_table import node_rows, picture

ALARM = "slave n1 has followed n0 with another store: " + "and more of this " * 9


def topology(size: int) -> Topology:
    nodes = tuple(
        NodeInfo(
            node_id=f"n{number}",
            role="slave" if number else "master",
            endpoint=f"127.0.0.1:{10_911 + number}",
            http_endpoint="",
            state="refused" if number == 1 else "running",
            epoch=12,
            in_sync=number != 1,
            min_offset=0,
            wrote_offset=size,
            flushed_offset=size,
            confirm_offset=size,
            reput_offset=size,
            lag_bytes=0,
            lag_seconds=0.125,
            detail="was killed by signal 9; restart it with: tandemlog node --config "
            "/a/rather/long/folder/n2/node.toml"
            if number == 2
            else "",
            store_host="",
            alarm=ALARM if number == 1 else "",
            reachable=True,
        )
        for number in range(3)
    )
    return Topology(nodes=nodes, master_id="n0")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 240])
@pytest.mark.parametrize("size", [7_000, 98_765_432_101_234])
def test_nothing_is_cut_off(width: int, size: int) -> None:
    seen, out = topology(size), io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    console.print(picture(node_rows(seen), [f"ALARM n1: {ALARM}"], console))
    text = out.getvalue()
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    rows = [line for line in text.splitlines() if line.startswith(("n0 ", "n1 ", "n2 "))]
    assert len(rows) == 3, "one line a node"
    assert text.count("restart") == 1
    said = " ".join(text.split())
    assert "--config /a/rather/long/folder/n2/node.toml" in said
    assert " ".join(ALARM.split()) in said
    assert ("confirm" in text) == (width >= 100)
