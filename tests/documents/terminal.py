"""A terminal that runs the commands of a page against a cluster that `tandemlog up` started.

    10911 in the texts ──▶ the port of this cluster
    command &          ──▶ runs on; `kill` and `wait` of the page work, since it is one shell

`tandemlog` and `python` are the program and the interpreter of these tests.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from helpers.running import ROOT, SMALL, first_of_free_row

PORT = "10911"
SIZES = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
MARK = "the command ended with "


class Terminal:
    """One bash in `folder`, and the cluster beside it. Close it, or use `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = first_of_free_row(3)
        shims = folder / "bin"
        shims.mkdir()
        for name, options in (
            ("tandemlog", "-m tandemlog"),
            ("python", ""),
            ("pytest", "-m pytest"),
        ):
            shim = shims / name
            shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {options} "$@"\n')
            shim.chmod(0o755)
        self.endpoint = f"127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "PATH": f"{shims}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TANDEMLOG_ENDPOINT": self.endpoint,
            "COLUMNS": "120",
        }
        self._up: subprocess.Popen[str] | None = None
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.run("set -m")  # jobs, as at a prompt: %1

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def up(self, command: str) -> None:
        """Starts the cluster in a terminal of its own; returns when it is ready."""
        self._up = subprocess.Popen(
            [*shlex.split(self.here(command)), f"--port={self.port}", *SIZES],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._up.stdout is not None
        said = []
        for line in self._up.stdout:
            said.append(line)
            if line.startswith("ready:"):
                return
        raise AssertionError("".join(said))

    def here(self, text: str) -> str:
        """A text of the page with the port of this cluster."""
        return text.replace(PORT, str(self.port))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self.here(text), encoding="utf-8")

    def run(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and what it printed; one with --watch is interrupted."""
        if "--watch" in command:
            command = f"timeout --preserve-status -s INT 3 {command}"
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{self.here(command)}\nended=$?; echo; echo '{MARK}'$ended\n")
        self._shell.stdin.flush()
        said: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(MARK):
                return int(line.removeprefix(MARK)), "".join(said)
            said.append(line)
        raise AssertionError(f"{command}: the shell ended:\n{''.join(said)}")

    def close(self) -> None:
        """Ends the shell with all that it started, then the cluster, by Ctrl-C."""
        self._shell.communicate("kill -KILL $(jobs -p); exit\n", timeout=60)
        if self._up is not None:
            os.killpg(self._up.pid, signal.SIGINT)
            said, _ = self._up.communicate(timeout=120)
            assert self._up.returncode == 0, said
