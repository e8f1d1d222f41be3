"""docs/operations.md is true: every command on it, in order, on real processes.

A comment `<!-- test: … -->` on the page says what happens to the cluster there; `# exit code N`
behind a command is checked, 0 without it. What is printed on the page is an example.
"""

import re
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.running import ROOT, NodeProcess, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

PAGE = ROOT / "docs" / "operations.md"
ASKING = ("check", "history", "topology")
DIRECTIVE = re.compile(r"<!-- test: (.*) -->")


def steps() -> Iterator[str]:
    """Commands as they stand, and directives behind `test:`."""
    in_console = False
    for line in PAGE.read_text().splitlines():
        if line.startswith("```"):
            in_console = line == "```console"
        elif in_console and line.startswith("$ "):
            yield line.removeprefix("$ ")
        elif found := DIRECTIVE.fullmatch(line):
            yield f"test: {found[1]}"


class Walk:
    """The cluster of the page; `lost` is the node that was lost last."""

    def __init__(self, cluster: Elected) -> None:
        self.cluster = cluster
        self.lost: NodeProcess | None = None

    def step(self, text: str) -> None:
        if text.startswith("test: "):
            self._happens(*text.removeprefix("test: ").split(" "))
        elif text.endswith(" &"):
            self._started(text.removesuffix(" &"))
        elif not text.startswith("export "):
            command, _, note = text.partition("    # exit code ")
            names = {"LOST": self.lost, "LAST": self.lost}
            if "SLAVE" in command or "MASTER" in command:
                names |= {"SLAVE": self._slave(), "MASTER": self.cluster.the_master()}
            program, *arguments = shlex.split(command)
            assert program == "tandemlog"
            arguments = [
                node.node_id if (node := names.get(each)) is not None else each
                for each in arguments
            ]
            code = int(note or 0)
            if arguments[0] in ASKING:
                self._ask(arguments, code)
            else:
                self.cluster.tandemlog(*arguments, code=code)

    def _ask(self, arguments: list[str], code: int) -> None:
        """A command that changes nothing: it may be too early, or the machine stood still."""
        said = ""

        def told() -> bool:
            nonlocal said
            done = self.cluster.run(*arguments)
            said = f"{done.returncode}: {done.stdout}{done.stderr}"
            return done.returncode == code

        wait_until(lambda: f"{arguments} to end with {code}, not {said}", told, 60)

    def _started(self, command: str) -> None:
        if command.startswith("tandemlog coordinator "):
            if self.cluster.coordinator.answers():
                return
            self.cluster.coordinator.start().wait_ready()
        else:
            [name] = re.findall(r"--config (n\d)\.toml", command)
            node = self.cluster.node(name)
            if not node.alive:
                node.start()

    def _happens(self, what: str, whom: str) -> None:
        cluster = self.cluster
        if (what, whom) == ("wait", "silence"):
            wait_until("the silence", lambda: cluster.run("check").returncode == 1, 60)
        elif (what, whom) == ("wait", "lease"):
            wait_until("the lease to end", self._is_down, 60)
        elif what == "wait":
            cluster.wait_in_sync(count=int(whom))
            self._put()
        elif (what, whom) == ("kill", "coordinator"):
            cluster.coordinator.kill()
        elif what == "kill":
            self.lost = self._slave() if whom == "slave" else cluster.node(whom)
            self.lost.kill()
        elif what == "start":
            assert self.lost is not None
            self.lost.start()
        elif what == "empty":
            slave = self._slave()
            slave.kill()
            shutil.rmtree(slave.store)
            slave.start()
        elif what == "lose":
            self._lose_all_in_sync()
        else:
            raise AssertionError(f"{what} {whom} is no step")

    def _slave(self) -> NodeProcess:
        master = self.cluster.the_master()
        return next(node for node in self.cluster.nodes if node is not master)

    def _is_down(self) -> bool:
        assert self.lost is not None
        with tandemlog.Admin(self.cluster.endpoints) as admin:
            node = admin.coordination().node(self.lost.node_id)
        return node is not None and not node.up

    def _lose_all_in_sync(self) -> None:
        """One slave is down while the others take puts, then these are lost."""
        last = self._slave()
        last.kill()
        self._put()
        for node in self.cluster.nodes:
            node.kill()
        self.lost = last.start()

    def _put(self) -> None:
        with tandemlog.Admin(self.cluster.endpoints) as admin:
            topics = [topic.name for topic in admin.topics()]
        if "sales" in topics:
            with tandemlog.Producer(self.cluster.endpoints) as producer:
                producer.send_many("sales", [b"%d" % each for each in range(20)])


def test_the_page(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        walk = Walk(cluster)
        for number, text in enumerate(steps()):
            began = time.monotonic()
            walk.step(text)
            print(f"{number}: {text}: {time.monotonic() - began:.1f} s")
        assert number > 30
