"""Programs of ours that fork from a process which has imported them already.

    a process of pytest ──▶ server: imports node once ──fork──▶ node n0, n1, `tandemlog check`, …
          │ program, files, a pipe                                   │
          └◀───────────── the pipe: process id, then exit code ◀─────┘

A node imports a thousand modules, which takes more processor time than all that most tests let it
do; the tests start thousands. What is forked runs the same `main` with arguments, environment,
folder and files of its own, is killed and paused as any process, and shares no descriptor. Programs
of another checkout, or behind a wrapper, are started as usual.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "tandemlog"]
MOST_BYTES = 1 << 17
"""Of a request: arguments and environment."""


class Forked:
    """Like subprocess.Popen, as far as tests use it."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: Path, files: Sequence[int]
    ) -> None:
        self.args = [*PROGRAM, *arguments]
        self.returncode: int | None = None
        self._told, told = os.pipe2(os.O_CLOEXEC)
        request = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd)}
        try:
            data = json.dumps(request).encode()
            assert len(data) < MOST_BYTES
            socket.send_fds(_server(), [data], [*files, told])
        finally:
            os.close(told)
        self.pid = int(self._line())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _end(self) -> None:
        self.returncode = int(self._line())
        os.close(self._told)

    def _line(self) -> bytes:
        """The server writes each in one piece."""
        line = os.read(self._told, 32)
        assert line, "the server of forked programs has ended"
        return line


AnyProcess = subprocess.Popen[bytes] | Forked


def start(
    command: Sequence[str], out: IO[bytes], *, cwd: Path, env: Mapping[str, str] | None = None
) -> AnyProcess:
    """Start it with nothing on stdin, and `out` as stdout and stderr."""
    if list(command[:3]) != PROGRAM or cwd != ROOT:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, env=env
        )
    with open(os.devnull, "rb") as nothing:
        files = (nothing.fileno(), out.fileno(), out.fileno())
        return Forked(command[3:], os.environ if env is None else env, cwd, files)


def run(*arguments: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """The program to its end."""
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        open(os.devnull, "rb") as nothing,
    ):
        files = (nothing.fileno(), out.fileno(), err.fileno())
        process = Forked(arguments, os.environ, ROOT, files)
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait(10)
            raise
        out.seek(0)
        err.seek(0)
        said, error = out.read().decode(), err.read().decode()
        return subprocess.CompletedProcess(process.args, code, said, error)


@cache
def _server() -> socket.socket:
    """The connection to the server of this process; it ends with the connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        server.wait(10)

    atexit.register(end)
    return ours


def _serve(descriptor: int) -> list[str]:
    """Fork for each request. Returns in what was forked, with its arguments; never in the server,
    which kills what it has forked at the end."""
    channel = socket.socket(fileno=descriptor)
    running: dict[int, tuple[int, int]] = {}
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    while True:
        for found, _ in ready.poll():
            if found in running:
                pid, told = running.pop(found)
                ready.unregister(found)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(BrokenPipeError):
                    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(told)
                os.close(found)
                continue
            data, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 4)
            if not data:
                _end_all([pid for pid, _ in running.values()])
            pid = os.fork()
            if not pid:
                os.close(channel.detach())
                for other, (_, told) in running.items():
                    os.close(other)
                    os.close(told)
                return _become(json.loads(data), files)
            watched = os.pidfd_open(pid)
            running[watched] = pid, files[3]
            ready.register(watched, select.POLLIN)
            os.write(files[3], b"%d\n" % pid)
            for each in files[:3]:
                os.close(each)


def _become(request: dict[str, Any], files: Sequence[int]) -> list[str]:
    for number in range(3):
        os.dup2(files[number], number)
    for each in files:
        os.close(each)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(str(request["cwd"]))
    time.tzset()
    # the server has used gRPC for nothing: what is forked need not load it once more
    own_grpc = sys.modules["tandemlog.transport.own_grpc"]
    own_grpc._inherited = False  # type: ignore[attr-defined]
    return list(map(str, request["arguments"]))


def _end_all(pids: Sequence[int]) -> NoReturn:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    sys.exit()


if __name__ == "__main__":
    app = importlib.import_module("tandemlog_server.cli.app")
    importlib.import_module("tandemlog_server.node.run")
    for name in app.COMMANDS.values():
        importlib.import_module(f"tandemlog_server.cli.commands.{name}")
    gc.collect()
    gc.freeze()
    sys.argv = ["tandemlog", *_serve(int(sys.argv[1]))]
    app.main()
