"""A node with a thread of its own, and the program run against it in this process.

Import the fixtures where they are used; tests know them as `node`, `run` and `topic`.
"""

import asyncio
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from helpers.program_call import call_program
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.config_loading import load_config
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection


def serve(
    directory: Path, started: "Future[Node]", stop: "Future[None]", path: Path | None = None
) -> None:
    async def run() -> None:
        node = Node(
            load_config(path)
            if path is not None
            else NodeConfig(
                listen="127.0.0.1:0",
                http_listen="",
                store=StoreSection(
                    directory=directory,
                    commit_log_file_size=1 << 20,
                    queue_file_size=8_000,
                    index_slots=500,
                    index_entries=2_000,
                ),
            ),
            path=path,
        )
        await node.start()
        started.set_result(node)
        await asyncio.wrap_future(stop)
        await node.stop()

    asyncio.run(run())


@pytest.fixture(scope="module", name="node")
def node_of_a_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with a loop and a thread of its own."""
    started: Future[Node] = Future()
    stop: Future[None] = Future()
    directory = tmp_path_factory.mktemp("store")
    thread = threading.Thread(target=serve, args=(directory, started, stop))
    thread.start()
    yield started.result(20)
    stop.set_result(None)
    thread.join(20)


Run = Callable[..., tuple[int, str, str]]


def program(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """Runs the program; the answer is exit code, stdout, stderr."""

    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        where = [] if "--endpoint" in arguments else ["--endpoint", endpoint]
        read, write = os.pipe()
        os.write(write, stdin)
        os.close(write)
        with io.FileIO(read) as source, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", source)
            return call_program(monkeypatch, capfd, *arguments, *where)

    return call


@pytest.fixture(name="run")
def run_of_a_test(
    node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """Run the program against the node."""
    return program(node.endpoints.listen, monkeypatch, capfd)


@pytest.fixture(name="topic")
def topic_of_a_test(run: Run, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.split("[")[0][-100:]
    code, _, err = run("topic", "create", name, "--queues", "2")
    assert code == 0, err
    return name


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]
