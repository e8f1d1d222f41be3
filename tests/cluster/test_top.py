"""`tandemlog top` on a terminal, with real nodes: it draws, follows what happens, and leaves the
terminal as it was."""

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import forked
from helpers.pseudo_terminal import PseudoTerminal
from helpers.running import Running
from tandemlog import Admin, Message, Producer

pytestmark = pytest.mark.cluster

TOPICS = 60
INTERVAL = ("--interval", "0.2")


@pytest.fixture(scope="module", name="cluster")
def cluster_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("top"), slaves=1) as running:
        with Admin(running.master.endpoint) as admin:
            for number in range(TOPICS):
                admin.create_topic(f"topic-{number:02}", queues=1)
        with Producer(running.master.endpoint) as producer:
            producer.send(Message("topic-07", b"x" * 100)).result(30)
        running.wait_in_sync()
        yield running


def top(cluster: Running, *arguments: str, columns: int = 80, lines: int = 24) -> PseudoTerminal:
    where = ("--endpoint", ",".join(cluster.endpoints))
    return PseudoTerminal(["top", *where, *INTERVAL, *arguments], columns=columns, lines=lines)


def test_it_draws_follows_and_ends(cluster: Running) -> None:
    with top(cluster) as terminal:
        shown = terminal.wait_shown("both nodes", lambda text: "1 slave in sync" in text)
        lines = shown.split("\n")
        assert len(lines) == 24
        assert {len(line) for line in lines} == {80}
        terminal.press("t")
        terminal.wait_shown("the topics", lambda text: f"1-21 of {TOPICS} topics" in text)
        terminal.press("G")
        terminal.wait_shown("the last ones", lambda text: f"40-60 of {TOPICS} topics" in text)
        terminal.press("/-07\r")
        terminal.wait_shown("one", lambda text: "1-1 of 1 topics" in text and "topic-07" in text)
        terminal.press("\x1bc")
        terminal.wait_shown("the nodes", lambda text: "lag B" in text)
        (slave,) = cluster.slaves
        slave.kill()
        try:
            terminal.wait_shown("it is gone", lambda text: "n1 cannot be reached" in text)
            with Producer(cluster.master.endpoint) as producer:
                producer.send(Message("topic-07", b"x")).result(30)
        finally:
            slave.start()
        terminal.wait_shown("it is back", lambda text: "1 slave in sync" in text, 60)
        terminal.press("q")
        assert terminal.wait_end() == 0
        assert terminal.is_restored
        assert "Traceback" not in terminal.text


def test_it_fits_the_terminal_when_that_changes(cluster: Running) -> None:
    with top(cluster, "--page", "topics") as terminal:
        terminal.wait_shown("topics", lambda text: f"1-21 of {TOPICS} topics" in text)
        terminal.resize(140, 40)
        shown = terminal.wait_shown("more", lambda text: f"1-37 of {TOPICS} topics" in text)
        assert [len(line) for line in shown.split("\n")] == [140] * 40
        terminal.press("q")
        assert terminal.wait_end() == 0


@pytest.mark.parametrize(
    ("number", "key", "code"), [(0, "\x03", 130), (signal.SIGTERM, "", -signal.SIGTERM)]
)
def test_the_terminal_is_restored_however_it_ends(
    cluster: Running, number: int, key: str, code: int
) -> None:
    with top(cluster) as terminal:
        terminal.wait_shown("the nodes", lambda text: "lag B" in text)
        assert not terminal.is_restored
        if key:
            terminal.press(key)
        else:
            terminal.process.send_signal(number)
        assert terminal.wait_end() == code
        assert terminal.is_restored
        assert "Traceback" not in terminal.text


def test_the_shell_has_the_terminal_while_it_is_stopped(cluster: Running) -> None:
    shell = ["/bin/bash", "--noprofile", "--norc", "-i"]
    with PseudoTerminal([], program=shell) as terminal:
        terminal.press("PS1=ready:; set +o emacs\n")
        terminal.wait_said("ready:")
        before = terminal.modes
        where = ("--endpoint", cluster.master.endpoint)
        terminal.press(shlex.join([*forked.PROGRAM, "top", *where, *INTERVAL]) + "\n")
        terminal.wait_shown("the nodes", lambda text: "lag B" in text)
        assert terminal.modes != before
        terminal.press("\x1a")
        terminal.wait_said("ready:")
        assert terminal.is_restored
        assert "Stopped" in terminal.text
        terminal.press("fg\n")
        terminal.wait_shown("the nodes", lambda text: "lag B" in text)
        terminal.press("q")
        terminal.wait_said("ready:")
        assert terminal.is_restored


def test_it_ends_with_its_terminal(cluster: Running) -> None:
    with top(cluster) as terminal:
        terminal.wait_shown("the nodes", lambda text: "lag B" in text)
        terminal.vanish()
        assert terminal.process.wait(30) == -signal.SIGHUP


def test_a_node_that_hangs_does_not_hold_up_the_others(cluster: Running) -> None:
    (slave,) = cluster.slaves
    with top(cluster) as terminal:
        terminal.wait_shown("both nodes", lambda text: "1 slave in sync" in text)
        slave.pause()
        try:
            terminal.wait_shown("it hangs", lambda text: "n1 cannot be reached" in text)
            terminal.press("t")
            terminal.wait_shown("a key", lambda text: "of 60 topics" in text)
        finally:
            slave.resume()
        terminal.press("c")
        terminal.wait_shown("it is back", lambda text: "1 slave in sync" in text, 60)
        terminal.press("q")
        assert terminal.wait_end() == 0


def test_no_node_is_one_line(tmp_path: Path) -> None:
    with PseudoTerminal(["top", "--endpoint", "127.0.0.1:1", "--timeout", "0.5"]) as terminal:
        assert terminal.wait_end() == 3
        assert terminal.is_restored
        said = terminal.text.rpartition("\x1b[?1049l")[2].strip()
        assert said.startswith("tandemlog: no node can be reached: 127.0.0.1:1 ")
        assert "\n" not in said


def test_without_a_terminal_it_is_text(cluster: Running) -> None:
    where = ("--endpoint", cluster.master.endpoint)
    done = forked.run("top", *where, *INTERVAL, "--page", "topics", timeout_s=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert sum(line.startswith("topic-") for line in done.stdout.splitlines()) == TOPICS
