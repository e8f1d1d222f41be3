"""Machines in namespaces hear each other, until they are cut off; and nothing of them stays."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from chaos.network import CLIENT, Network, sweep
from helpers.running import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.netns]

PORT = 4_000
LISTEN = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.bind(("", int(sys.argv[1])))
    print("ready", flush=True)
    while True:
        print(here.recv(100).decode(), flush=True)
"""
SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(["a", "b"]) as running:
        yield running


class Listener:
    """A program on a machine that prints what it gets."""

    def __init__(self, network: Network, name: str) -> None:
        command = [*network.place(name).wrapper, sys.executable, "-c", LISTEN, str(PORT)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.next() == "ready"

    def next(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def send(network: Network, sender: str, receiver: str, text: str) -> None:
    wrapper = () if sender == CLIENT else network.place(sender).wrapper
    arguments = [network.address(receiver), str(PORT), text]
    subprocess.run([*wrapper, sys.executable, "-c", SEND, *arguments], check=True, timeout=120)


def test_a_cut_is_one_way_and_silent_until_it_is_healed(network: Network) -> None:
    with Listener(network, "a") as a, Listener(network, "b") as b:
        network.cut(["a", CLIENT], ["b"])
        send(network, "a", "b", "dropped")
        send(network, CLIENT, "b", "dropped")
        send(network, "b", "a", "from b")
        send(network, CLIENT, "a", "from the client")
        assert [a.next(), a.next()] == ["from b", "from the client"]
        network.heal()
        send(network, "a", "b", "from a")
        send(network, CLIENT, "b", "from the client")
        assert [b.next(), b.next()] == ["from a", "from the client"]
        network.separate(["a"], ["b"])
        send(network, "a", "b", "dropped")
        send(network, "b", "a", "dropped")
        send(network, CLIENT, "a", "last")
        send(network, CLIENT, "b", "last")
        assert [a.next(), b.next()] == ["last", "last"]


def namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout


def test_what_a_killed_run_left_behind_goes_away_with_the_next() -> None:
    program = (
        "import os\n"
        "from chaos.network import Network\n"
        "Network(['a']).__enter__()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    path = f"{ROOT}:{ROOT / 'tests'}"
    environment = {**os.environ, "PYTHONPATH": path}
    killed = subprocess.Popen([sys.executable, "-c", program], env=environment)
    killed.wait(120)
    left = f"tl{killed.pid}x0-a"
    assert left in namespaces()
    sweep()
    assert left not in namespaces()


def test_a_network_ends_with_all_that_runs_in_it() -> None:
    ours = f"tl{os.getpid()}x"
    with Network(["a"]) as network, Listener(network, "a") as listener:
        assert ours in namespaces()
        network.close()
        assert listener.next() == ""  # its output has ended
    assert ours not in namespaces()
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert ours not in links
