"""What the service manager is told, by a socket that stands for systemd's."""

import asyncio
import socket
from pathlib import Path

import pytest

from tandemlog_server.node.process.service_manager import Manager, said_ready


class Systemd:
    """A socket like the one that systemd names in NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind("\0" + address[1:] if address.startswith("@") else address)
        self._line.setblocking(False)

    def heard(self) -> list[str]:
        said = []
        while True:
            try:
                said.append(self._line.recv(4096).decode())
            except BlockingIOError:
                return said


class Pauses:
    """Lets the watchdog pause `times` times, then keeps it waiting."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked: list[float] = []
        self.over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        if len(self.asked) > self.left:
            self.over.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize("kind", ["file", "abstract"])
async def test_ready_then_signs_of_life_then_stopping(kind: str, tmp_path: Path) -> None:
    address = str(tmp_path / "notify") if kind == "file" else f"@{tmp_path}"
    systemd, pauses = Systemd(address), Pauses(2)
    async with said_ready("serving on a:1", Manager(address, 30.0), pauses):
        assert systemd.heard() == ["READY=1\nSTATUS=serving on a:1"]
        await pauses.over.wait()
        assert systemd.heard() == ["WATCHDOG=1"] * 2
    assert [text.partition("\n")[0] for text in systemd.heard()] == ["STOPPING=1"]
    assert pauses.asked == [15.0] * 3


async def test_stopping_is_said_when_the_body_fails(tmp_path: Path) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    with pytest.raises(ValueError, match="the node ended"):
        async with said_ready("", Manager(str(tmp_path / "notify"))):
            raise ValueError("the node ended")
    assert systemd.heard()[-1].startswith("STOPPING=1")


async def test_nothing_is_said_where_nobody_asked() -> None:
    async with said_ready("serving", Manager()):
        assert len(asyncio.all_tasks()) == 1


async def test_a_manager_that_is_gone_does_not_end_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with said_ready("serving", Manager(str(tmp_path / "gone"))):
        pass
    assert f"the service manager at {tmp_path / 'gone'} does not hear" in caplog.text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Manager()),
        ({"NOTIFY_SOCKET": "/a"}, Manager("/a")),
        ({"NOTIFY_SOCKET": "/a", "WATCHDOG_USEC": "30000000"}, Manager("/a", 30.0)),
        ({"NOTIFY_SOCKET": "/a", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "7"}, Manager("/a", 5e-6)),
        ({"NOTIFY_SOCKET": "/a", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "8"}, Manager("/a")),
        ({"NOTIFY_SOCKET": "/a", "WATCHDOG_USEC": "soon"}, Manager("/a")),
    ],
)
def test_the_environment_names_it_and_is_left_without_it(
    given: dict[str, str], expected: Manager
) -> None:
    environment = {**given, "HOME": "/"}
    assert Manager.named_in(environment, pid=7) == expected
    assert environment == {"HOME": "/"}
