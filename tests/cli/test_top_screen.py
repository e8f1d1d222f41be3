"""The screen of `tandemlog top`: a function of what is known, chosen, and of a terminal's size."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tandemlog.cluster.elections import Coordination, History, RosterNode, Term
from tandemlog.cluster.topic_info import TopicInfo
from tandemlog.cluster.topology import CoordinatorInfo, NodeInfo, Topology
from tandemlog_server.cli.cluster.traffic import DISK_FREE, DISK_SIZE, Sample
from tandemlog_server.cli.top.cluster_page import sparkline
from tandemlog_server.cli.top.recent import ALL, POINTS, Details, Look, Recent, after
from tandemlog_server.cli.top.screen import screen, snapshot
from tandemlog_server.cli.top.topics_page import topic_rows
from tandemlog_server.cli.top.view import Page, View

ALARM = "slave n1 has followed n0 with another store; take it out with `tandemlog reinit n1`"
COORDINATOR = CoordinatorInfo(("127.0.0.1:2379",), "etcd", 7, 0.1, False, "uuid", 2, 0.1)
TOPICS = View(page=Page.TOPICS)


def node(name: str, role: str = "slave", **changes: Any) -> NodeInfo:
    info = NodeInfo(
        node_id=name,
        role=role,
        endpoint=f"127.0.0.1:1{name[1:]}",
        http_endpoint="127.0.0.1:1",
        state="running" if role == "master" else "in-sync",
        epoch=2,
        in_sync=True,
        min_offset=0,
        wrote_offset=9_000,
        flushed_offset=9_000,
        confirm_offset=9_000,
        reput_offset=9_000,
        lag_bytes=0,
        lag_seconds=0.0,
        detail="",
        store_host="",
        reachable=True,
        coordinator=COORDINATOR,
    )
    return replace(info, **changes)


def cluster(*nodes: NodeInfo) -> Topology:
    masters = [each.node_id for each in nodes if each.is_master and each.reachable]
    return Topology(
        nodes=nodes,
        cluster_id="shop",
        flush="sync",
        replication="sync",
        min_in_sync=2,
        master_id=masters[0] if masters else "",
        coordinator=COORDINATOR,
    )


THREE = cluster(node("n0", "master"), node("n1"), node("n2"))


def sample(name: str, at_s: float, **topics: float) -> Sample:
    """Each topic with so many messages of ten bytes in, and half of them out."""
    counters = {name: (n, n * 10, n / 2, n * 5) for name, n in topics.items()}
    return Sample(name, at_s, counters, {DISK_SIZE: 4e9, DISK_FREE: 1e9})


def look(topology: Topology | None, *samples: Sample, **changes: Any) -> Look:
    return Look(topology, samples, changes.pop("details", Details()), 1_000_000, **changes)


def seen(*looks: Look) -> Recent:
    recent = Recent()
    for each in looks:
        recent = after(recent, each)
    return recent


def busy(topology: Topology = THREE, **details: Any) -> Recent:
    return seen(
        look(topology, sample("n0", 1, orders=100), sample("n1", 1), sample("n2", 1)),
        look(
            topology,
            sample("n0", 3, orders=300),
            sample("n1", 3),
            sample("n2", 3),
            details=Details(**details),
        ),
    )


def text_of(recent: Recent, view: View, width: int, height: int) -> list[str]:
    """The lines as a terminal of this size shows them."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    console.print(screen(recent, view, width, height), end="")
    return out.getvalue().split("\n")


def line_of(lines: list[str], begin: str) -> str:
    return next(line for line in lines if line.startswith(begin))


def table(lines: list[str], column: str) -> dict[str, list[str]]:
    """The words of each row of the table with this column, by the first of them."""
    head = next(number for number, line in enumerate(lines) if column in line)
    rows: dict[str, list[str]] = {}
    for line in lines[head + 1 :]:
        if not line.strip():
            break
        first, *others = line.split()
        rows.setdefault(first, others)
    return rows


# ---- the size


@pytest.mark.parametrize("width", [20, 40, 80, 81, 120, 250])
@pytest.mark.parametrize("height", [4, 10, 24, 70])
@pytest.mark.parametrize("view", [View(), TOPICS, replace(TOPICS, words="1", typing=True)])
def test_it_has_the_size_of_the_terminal(width: int, height: int, view: View) -> None:
    alarmed = cluster(node("n0", "master"), node("n1", alarm=ALARM * 5), node("n2"))
    recent = busy(alarmed, topics=[TopicInfo(f"topic-{number}") for number in range(2_000)])
    lines = text_of(recent, view, width, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}


def test_the_last_row_can_be_reached() -> None:
    recent = busy(topics=[TopicInfo(f"topic-{number:04}") for number in range(2_000)])
    view = replace(TOPICS, sort="topic")
    room = screen(recent, view, 80, 24).room
    assert (room.rows, room.shown, room.most) == (2_001, 21, 1_980)
    for first in (room.most, room.most + 50):
        lines = text_of(recent, replace(view, first=first), 80, 24)
        assert lines[-2].startswith("topic-1999 ")
    assert lines[-1].startswith("1,981-2,001 of 2,001 topics   q quit")
    assert "/ filter" in lines[-1]


def test_a_page_that_is_longer_than_the_terminal_is_scrolled() -> None:
    alarmed = cluster(node("n0", "master"), node("n1", alarm=ALARM * 9))
    recent = busy(alarmed)
    room = screen(recent, View(), 80, 10).room
    everything = "".join(
        text_of(recent, View(first=first), 80, 10)[1] for first in range(room.most + 1)
    )
    assert "".join(ALARM.split()) * 9 in "".join(everything.split())


# ---- the cluster


def test_nodes_with_their_rates() -> None:
    lines = text_of(busy(), View(), 100, 30)
    assert lines[0].split()[4::2] == ["OK", "shop"]
    assert lines[1].startswith("n0 is the master, 2 slaves in sync")
    nodes, traffic = table(lines, "endpoint"), table(lines, "MB in/s")
    assert nodes["n0"][:2] == ["master", "127.0.0.1:10"]
    assert nodes["n0"][-2:] == ["75", "1"]  # per cent of the disk, GB free
    assert traffic["n0"] == traffic["all"] == ["100", "0.001", "50", "0.001"]
    assert traffic["n1"] == ["0", "0", "0", "0"]


def test_an_alarm_stands_first_with_its_way_out() -> None:
    alarmed = cluster(node("n0", "master"), node("n1", alarm=ALARM))
    lines = text_of(busy(alarmed), View(), 120, 30)
    assert "CRITICAL" in lines[0]
    assert lines[1].strip() == f"alarm of n1: {ALARM}"


def test_a_node_that_is_gone_is_shown_and_keeps_its_plot() -> None:
    recent = busy()
    gone = cluster(node("n0", "master", reachable=False), node("n1", "master", epoch=3), node("n2"))
    recent = after(recent, look(gone, sample("n1", 4), sample("n2", 4)))
    lines = text_of(recent, View(), 120, 30)
    assert "n0 cannot be reached" in lines[1]
    nodes = table(lines, "endpoint")
    assert nodes["n0"][:2] == ["127.0.0.1:10", "unreachable"]
    assert nodes["n1"][0] == "master"
    assert recent.points["n0"][-1] is None
    assert table(lines, "MB in/s")["n0"] == ["█", "█"]


def test_when_no_node_answers_all_are_gone() -> None:
    recent = after(busy(), look(None, fault="no node can be reached: 127.0.0.1:10 (refused)"))
    lines = text_of(recent, View(), 100, 30)
    assert "UNKNOWN" in lines[0]
    assert lines[1].strip() == "no node can be reached: 127.0.0.1:10 (refused)"
    assert [row[1] for row in table(lines, "endpoint").values()][:3] == ["unreachable"] * 3
    again = after(recent, look(THREE, sample("n0", 9, orders=900)))
    assert "OK" in text_of(again, View(), 100, 30)[0]
    assert again.points["n0"][-1] is None, "it was not read before"


def elected(**changes: Any) -> Coordination:
    def member(name: str, *, in_sync: bool = True, why: str = "") -> RosterNode:
        return RosterNode(name, False, 1, in_sync, why, True, "", "", "", 2, 0, 100, "")

    roster = (member("n0"), member("n1"), member("n2", in_sync=False, why="it is 5 MB behind"))
    state = Coordination(
        "n1", COORDINATOR, "uuid", 2, "n0", True, "n1 went away", 0, (), roster, None
    )
    return replace(state, **changes)


def test_why_a_node_is_not_in_sync_and_who_has_led() -> None:
    terms = [Term(epoch, f"n{epoch % 3}", "first start", 1_000, False, 0) for epoch in range(1, 9)]
    history = History("n1", 7, (*terms, Term(9, "n0", "n2 was gone", 500_000, False, 0)))
    lines = text_of(busy(coordination=elected(), history=history), View(), 100, 40)
    assert line_of(lines, "n2: ").strip() == "n2: it is 5 MB behind"
    assert line_of(lines, "n0 leads").strip() == "n0 leads epoch 2: n1 went away"
    head = next(number for number, line in enumerate(lines) if line.startswith("epoch  leader"))
    assert [line.split()[:2] for line in lines[head + 1 : head + 6]] == [
        ["9", "n0"], ["8", "n2"], ["7", "n1"], ["6", "n0"], ["5", "n2"]
    ]  # fmt: skip
    assert "8 min 20 s so far" in lines[head + 1]
    assert not lines[head + 6].strip()


def test_what_cannot_be_read_is_said() -> None:
    unread = Sample("n0", 2, {}, {}, "it has no HTTP port (http_listen)")
    recent = seen(look(THREE, unread, details=Details(faults=("the coordinator: no answer",))))
    lines = "\n".join(text_of(recent, View(), 100, 30))
    assert "n0: its metrics cannot be read: it has no HTTP port (http_listen)" in lines
    assert "the coordinator: no answer" in lines


def test_names_do_not_control_the_terminal() -> None:
    bad = "\x1b[2J\x07"
    topology = cluster(node("n0", "master", detail=f"stopped{bad}"))
    recent = busy(topology, topics=[TopicInfo(f"evil{bad}")])
    for view in (View(), TOPICS):
        text = "".join(text_of(recent, view, 120, 30))
        assert not {"\x1b", "\x07"} & set(text)
        assert "x1b[2J" in text


# ---- plots


def test_a_plot_has_the_newest_at_the_right() -> None:
    values = [0.0, 1.0, 50.0, 100.0, None]
    assert sparkline(values, POINTS, 100, 5) == "▁▂▅█ ".rjust(POINTS)
    assert sparkline([0.0, 0.0], 10, 0, 2) == "▁".rjust(10)


def test_a_bar_keeps_its_values_from_one_look_to_the_next() -> None:
    values: list[float] = [float(number % 7) for number in range(500)]
    before = sparkline(values[-POINTS:], 20, 6, 500)
    for count in range(501, 506):
        values.append(6.0)
        now = sparkline(values[-POINTS:], 20, 6, count)
        assert len(now) == 20
        assert now[:-2] in before or before[1:-1] in now, (before, now)
    assert now[-1] == "█"


def test_rates_are_kept_for_a_while_and_of_nodes_that_there_are() -> None:
    recent = Recent()
    for number in range(POINTS + 50):
        recent = after(recent, look(THREE, sample("n0", number, orders=number * 5)))
    assert len(recent.points["n0"]) == len(recent.points[ALL]) == POINTS
    point = recent.newest("n0")
    assert (point or {})["messages_in_per_second"] == 5
    recent = after(recent, look(cluster(node("n7", "master")), sample("n7", 999)))
    assert set(recent.points) == {"n7", ALL}


# ---- topics


def test_topics_are_sorted_by_rate() -> None:
    names = ("a", "b", "c", "idle")
    recent = seen(
        look(THREE, sample("n0", 0, a=10, b=0, c=0)),
        look(
            THREE,
            sample("n0", 1, a=20, b=500, c=30),
            details=Details(topics=[TopicInfo(name, write_queues=3) for name in names]),
        ),
    )
    assert [row["topic"] for row in topic_rows(recent, TOPICS)] == ["b", "c", "a", "idle"]
    by_name = topic_rows(recent, replace(TOPICS, sort="topic"))
    assert [row["topic"] for row in by_name] == list(names)
    found = topic_rows(recent, replace(TOPICS, words="DL"))
    assert [(row["topic"], row["queues"], row["in/s"]) for row in found] == [("idle", 3, 0)]
    lines = text_of(recent, TOPICS, 80, 10)
    assert lines[1].split("  ")[0] == "topic"
    assert " in/s▾ " in lines[1]
    assert lines[2].split() == ["b", "3", "500", "250", "0.005", "0.003", "500"]


def test_the_rates_of_topics_that_are_counted_together_are_unknown() -> None:
    recent = seen(
        look(THREE, sample("n0", 0, a=10, other=0)),
        look(
            THREE,
            sample("n0", 1, a=20, other=900),
            details=Details(topics=[TopicInfo("a"), TopicInfo("late")]),
        ),
    )
    rows = {row["topic"]: row for row in topic_rows(recent, TOPICS)}
    assert list(rows) == ["other", "a", "late"]
    assert "in/s" not in rows["late"]
    assert text_of(recent, TOPICS, 80, 10)[4].split() == ["late", "4"]


def test_without_metrics_no_topic_seems_idle() -> None:
    unread = Sample("n0", 2, {}, {}, "refused")
    each = look(THREE, unread, details=Details(topics=[TopicInfo("a")]))
    (row,) = topic_rows(seen(each, each), TOPICS)
    assert "in/s" not in row


def test_a_snapshot_has_all_rows() -> None:
    recent = busy(topics=[TopicInfo(f"topic-{number}") for number in range(300)])
    assert len(snapshot(recent, TOPICS, 80).lines) == 303
