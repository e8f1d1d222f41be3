"""docs/operations.md is true: every command on it, in order, on real processes.

A comment `<!-- test: … -->` on the page says what happens to the cluster there; `# exit code N`
behind a command is checked, 0 without it. What is printed on the page is an example.
"""

import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tandemlog
from helpers import forked
from helpers.elected import Elected
from helpers.running import ROOT, SMALL, NodeProcess, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

PAGE = ROOT / "docs" / "operations.md"
ASKING = ("check", "history", "topology")
ON_FILES = ("backup", "restore")
SIZES = [
    f"--{name.replace('_', '-')}={size}"
    for name, size in SMALL.items()
    if name
    in (
        "index_slots",
        "index_entries",
        "queue_file_size",
    )
]
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

    def __init__(self, cluster: Elected, folder: Path) -> None:
        self.cluster = cluster
        self.lost: NodeProcess | None = None
        self.backup = folder / "backup"
        self.messages: list[bytes] = []
        self.epoch = 0

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
            if arguments[0] in ON_FILES:
                self._on_files(arguments, code)
            elif arguments[0] in ASKING:
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

    def _on_files(self, arguments: list[str], code: int) -> None:
        """A command on the folders of the page, which are elsewhere here."""
        folders = {f"/var/lib/tandemlog/{node.node_id}": node.store for node in self.cluster.nodes}
        if self.lost is not None:
            folders["/var/lib/tandemlog/LOST"] = self.lost.store
        folders["/backups/shop"] = self.backup
        slave = "127.0.0.1:10912"
        words = [str(folders.get(each, each)) for each in arguments]
        words = [self._slave().endpoint if each == slave else each for each in words]
        sizes = [] if arguments[1] == "verify" else SIZES
        done = forked.run(*words, *sizes, timeout_s=120)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"

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
        elif (what, whom) == ("lose", "all"):
            self._lose_all()
        elif (what, whom) == ("find", "backup"):
            self._find_what_was_backed_up()
        elif what == "stop":
            self.lost = self._slave()
            self.messages = self._messages()
            assert self.lost.stop() == 0
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

    def _lose_all(self) -> None:
        """Every process, and every disk of them."""
        self.epoch = self.cluster.epoch(self.cluster.the_master())
        self.cluster.coordinator.kill()
        shutil.rmtree(self.cluster.coordinator.data)
        for node in self.cluster.nodes:
            node.kill()
            shutil.rmtree(node.store)

    def _messages(self) -> list[bytes]:
        with tandemlog.Consumer(self.cluster.endpoints) as consumer:
            batches = list(consumer.scan("sales", columns=["body"]))
        return sorted(body for batch in batches for body in batch.column("body").to_pylist())

    def _find_what_was_backed_up(self) -> None:
        """All that was there when the backup was taken, below a term that readers have not seen."""
        assert self.cluster.epoch(self.cluster.the_master()) > self.epoch
        assert self.messages
        found = self._messages()
        missing = Counter(self.messages) - Counter(found)
        assert not missing

    def _put(self) -> None:
        with tandemlog.Admin(self.cluster.endpoints) as admin:
            topics = [topic.name for topic in admin.topics()]
        if "sales" in topics:
            with tandemlog.Producer(self.cluster.endpoints) as producer:
                producer.send_many("sales", [b"%d" % each for each in range(20)])


def test_the_page(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        walk = Walk(cluster, tmp_path)
        for number, text in enumerate(steps()):
            began = time.monotonic()
            walk.step(text)
            print(f"{number}: {text}: {time.monotonic() - began:.1f} s")
        assert number > 30
