"""What is generated and committed is what its sources give: stubs, and synchronous clients."""

import filecmp
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.generate_sync import FOLDER, CannotGenerateError, generate, synchronous

ROOT = Path(__file__).resolve().parent.parent


def test_stubs_are_current(tmp_path: Path) -> None:
    # protoc finds its mypy plug-ins on PATH, beside the interpreter
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate_stubs.py"), str(tmp_path)],
        check=True,
        env={**os.environ, "PATH": path},
    )
    for package, count in (("v1", 16), ("rocketmq_v2", 4)):
        fresh = sorted((tmp_path / "tandemlog" / package).glob("*_pb2*"))
        assert len(fresh) >= count
        committed = ROOT / "tandemlog" / package
        stale = [
            each.name
            for each in fresh
            if not filecmp.cmp(each, committed / each.name, shallow=False)
        ]
        assert not stale, f"run `make proto`: {stale} differ from what the .proto files give"
        assert {each.name for each in committed.glob("*_pb2*")} == {each.name for each in fresh}


def test_synchronous_clients_are_current(tmp_path: Path) -> None:
    generate(tmp_path)
    fresh = sorted((tmp_path / FOLDER).glob("*.py"))
    stale = [
        each.name
        for each in fresh
        if not filecmp.cmp(each, ROOT / FOLDER / each.name, shallow=False)
    ]
    assert not stale, f"run `make sync`: {stale} differ from what the clients for asyncio give"
    committed = {each.name for each in (ROOT / FOLDER).glob("*.py")}
    assert committed == {"__init__.py", "admin.py", "consumer.py", "work_admin.py"}
    assert committed == {"__init__.py", *(each.name for each in fresh)}


CLIENT = """
from .consume.reading.queue_lag import QueueLag

class AsyncDesk:
    \"\"\"Answers.\"\"\"

    def __init__(self, *, name: str = "x") -> None:
        self.name = name
        self._hidden = name

"""


def made(method: str) -> str:
    return synchronous(CLIENT + method, "tandemlog/desk.py", "AsyncDesk")


def test_a_method_becomes_a_call_in_the_loop() -> None:
    text = made(
        """
    async def lag(self, group: str, topics: tuple[str, ...] = (), *, of: int = 3) -> QueueLag:
        \"\"\"Use `async with AsyncAdmin(...)`, or await admin.close() in the task.\"\"\"
        return QueueLag()

    async def clear(self) -> None:
        ...

    def known(self, /, name: str) -> bool:
        return True

    async def _own(self) -> None:
        ...
"""
    )
    assert "from ...consume.reading.queue_lag import QueueLag" in text
    assert "from ...desk import AsyncDesk" in text
    assert "class Desk(SyncClient[AsyncDesk]):" in text
    assert "super().__init__(AsyncDesk(name=name))" in text
    assert "self.name = self._client.name" in text
    assert "_hidden" not in text
    assert (
        "def lag(self, group: str, topics: tuple[str, ...]=(), *, of: int=3) -> QueueLag:" in text
    )
    assert '"""Use `with Admin(...)`, or admin.close() in the thread."""' in text
    assert "        return self._thread.run(self._client.lag(group, topics, of=of))" in text
    assert "        self._thread.run(self._client.clear())" in text
    assert "        return self._client.known(name)" in text
    assert "_own" not in text
    compile(text, "desk.py", "exec")


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("    async def open_desk(self) -> AsyncDesk: ...", "AsyncDesk"),
        ("    async def each(self, of: Awaitable[int]) -> int: ...", "Awaitable"),
        ("    async def each(self, *of: int) -> int: ...", "arguments"),
        ("    async def each(self) -> Unknown: ...", "imports Unknown"),
        ("    limit = 3", "only methods"),
        ("    @property\n    def size(self) -> int: ...", "only methods"),
        ('    async def each(self) -> int:\n        """See asyncio.gather."""', "asyncio"),
    ],
)
def test_what_a_synchronous_program_cannot_use_is_refused(method: str, why: str) -> None:
    with pytest.raises(CannotGenerateError, match=why):
        made(method)
