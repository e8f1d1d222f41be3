"""Machines in network namespaces, and what is cut between them.

    client (this process)   n0    n1    n2    c0 …      a namespace each
              │             │     │     │     │         one address each: 10.213.<net>.<number>
              ╰─────────────┴──┬──┴─────┴─────╯
                             router                     its FORWARD chain drops what is cut

Every packet between two machines goes through the router's FORWARD chain, so one place holds every
cut, each in one direction. A cut is silent: packets are dropped, and nobody is told.

Programs enter a namespace by nsenter: `ip netns exec` would give each a mount namespace too, which
holds every disk that is mounted at that moment, so that no other test could unmount its own.

Names have the process id in them. What a process left behind that was killed (namespaces, and the
programs in them) goes away when the next network is made.
"""

import contextlib
import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from typing import Self

from helpers.running import Place

CLIENT = "client"
ROUTER = "router"
NET = "10.213"
_OURS = re.compile(r"tl(\d+)x\d+-")
_counter = itertools.count()


class Network:
    """`with` it: the machines `names`, which all hear each other and the client."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"tl{os.getpid()}x{next(_counter)}"
        self._names = tuple(names)
        self._subnet = ""

    def __enter__(self) -> Self:
        sweep()
        self._subnet = _free_subnet()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """With every program that still runs there, and with our own end of the cable: the kernel
        removes it some time after the router's namespace, which has the other."""
        if re.search(rf"\b{self._prefix}@", _run("ip", "link")):
            _run("ip", "link", "del", "dev", self._prefix)
        for namespace in _namespaces():
            if namespace.startswith(f"{self._prefix}-"):
                _remove(namespace)

    def address(self, name: str) -> str:
        number = 1 if name == CLIENT else 11 + self._names.index(name)
        return f"{self._subnet}.{number}"

    def place(self, name: str) -> Place:
        """Programs that start there end with the thread that has started them."""
        wrapper = (*_inside(self._namespace(name)), "setpriv", "--pdeathsig", "KILL")
        return Place(self.address(name), wrapper)

    def cut(self, senders: Iterable[str], receivers: Iterable[str]) -> None:
        """Drop what `senders` send to `receivers`, until `heal`; the other way is as before."""
        for sender, receiver in itertools.product(senders, tuple(receivers)):
            if sender != receiver:
                rule = ("-s", self.address(sender), "-d", self.address(receiver), "-j", "DROP")
                self._in_router("iptables", "-w", "-A", "FORWARD", *rule)

    def separate(self, ones: Iterable[str], others: Iterable[str]) -> None:
        """Cut both ways."""
        left, right = tuple(ones), tuple(others)
        self.cut(left, right)
        self.cut(right, left)

    def heal(self) -> None:
        self._in_router("iptables", "-w", "-F", "FORWARD")

    # ---- how

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _in_router(self, *command: str) -> None:
        _run(*_inside(self._namespace(ROUTER)), *command)

    def _make(self) -> None:
        for name in (ROUTER, *self._names):
            _run("ip", "netns", "add", self._namespace(name))
            _run("ip", "-n", self._namespace(name), "link", "set", "dev", "lo", "up")
        for key in ("ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0"):
            self._in_router("sysctl", "-qw", f"net.ipv4.{key}")
        for name in (CLIENT, *self._names):
            self._connect(name)

    def _connect(self, name: str) -> None:
        """A cable from the machine to the router, and the routes of both ends."""
        host, router = self.address(name), f"{self._subnet}.254"
        ours = self._prefix if name == CLIENT else "eth0"
        here = () if name == CLIENT else ("-n", self._namespace(name))
        there = ("-n", self._namespace(ROUTER))
        peer = ("peer", "name", name, "netns", self._namespace(ROUTER))
        _run("ip", *here, "link", "add", "dev", ours, "type", "veth", *peer)
        for command in (
            (*here, "addr", "add", f"{host}/32", "dev", ours),
            (*here, "link", "set", "dev", ours, "up"),
            (*here, "route", "add", f"{router}/32", "dev", ours),
            (*here, "route", "add", f"{self._subnet}.0/24", "via", router, "src", host),
            (*there, "addr", "add", f"{router}/32", "dev", name),
            (*there, "link", "set", "dev", name, "up"),
            (*there, "route", "add", f"{host}/32", "dev", name),
        ):
            _run("ip", *command)


def sweep() -> None:
    """Remove the namespaces of processes that have ended."""
    for namespace in _namespaces():
        ours = _OURS.match(namespace)
        if ours is not None and not os.path.exists(f"/proc/{ours[1]}"):
            _remove(namespace)


def _inside(namespace: str) -> tuple[str, ...]:
    return ("nsenter", f"--net=/run/netns/{namespace}")


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]


def _remove(namespace: str) -> None:
    try:
        for pid in _run("ip", "netns", "pids", namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        _run("ip", "netns", "del", namespace)
    except AssertionError:
        if namespace in _namespaces():  # otherwise another process has swept it
            raise


def _free_subnet() -> str:
    """The first three numbers of addresses that no network of this machine has."""
    taken = _run("ip", "-o", "-4", "addr")
    for offset in range(256):
        subnet = f"{NET}.{(os.getpid() + offset) % 256}"
        if f" {subnet}." not in taken:
            return subnet
    raise AssertionError(f"no free network in {NET}.0.0/16")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout
