"""The coordinator of a local cluster: our own single process, or three members of etcd.

    DIR/coordinator/          data of the embedded one; log in DIR/coordinator.log
    DIR/etcd-0/ …             data of each member of etcd; logs in DIR/etcd-0.log

Its processes end with the one that started them, as the nodes do. One that dies is restarted: a
member of etcd by itself is no loss, and without the embedded one the nodes keep their roles.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tandemlog
from tandemlog_server.node.settings.config_error import ConfigError
from tandemlog_server.node.settings.listen_endpoints import usable

from .local_security import COORDINATOR, OPERATOR, LocalSecurity

NONE = "none"
EMBEDDED = "embedded"
ETCD = "etcd"

PORT_DISTANCE = 50
"""From the first node's port to the coordinator's first one."""
MEMBERS = 3
PORTS = 2 * MEMBERS
STOP_S = 10.0
AGAIN_AFTER_S = 1.0


def with_package_path() -> dict[str, str]:
    """The environment of a process of the cluster: with this very package on its path."""
    package_root = str(Path(tandemlog.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


@dataclass(slots=True)
class _Server:
    """One process. `command` starts it, also again on the same data."""

    name: str
    endpoint: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0


class LocalCoordinator:
    """See the module. `port` is that of the cluster's first node. Raises ConfigError if etcd is
    wanted and not installed."""

    def __init__(
        self, directory: Path, kind: str, port: int, security: LocalSecurity | None = None
    ) -> None:
        self.kind = kind
        first = port + PORT_DISTANCE
        if kind == EMBEDDED:
            self._servers = [_embedded(directory, first, security)]
            self.ports = [first]
        else:
            if shutil.which("etcd") is None:
                raise ConfigError(
                    "etcd is not on PATH: install it (Debian: etcd-server), or leave --etcd out"
                )
            self._servers = [_etcd(directory, first, number, security) for number in range(MEMBERS)]
            self.ports = [*range(first, first + PORTS)]

    @property
    def endpoints(self) -> list[str]:
        return [server.endpoint for server in self._servers]

    def check_ports(self) -> None:
        """Raises ListenError if another process has one of the ports."""
        for port in self.ports:
            usable("the coordinator", f"127.0.0.1:{port}")

    def start(self) -> None:
        for server in self._servers:
            _start(server)

    def restart_ended(self) -> None:
        """Start again what has ended."""
        now = time.monotonic()
        for server in self._servers:
            ended = server.process is not None and server.process.poll() is not None
            if ended and now - server.started_at > AGAIN_AFTER_S:
                _start(server)

    def stop(self) -> None:
        """After the nodes: they give their leases back."""
        for server in self._servers:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGTERM)
        for server in self._servers:
            if server.process is None:
                continue
            try:
                server.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()


def _start(server: _Server) -> None:
    server.started_at = time.monotonic()
    with server.log.open("ab") as log:
        server.process = subprocess.Popen(
            server.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=with_package_path(),
        )


def _embedded(directory: Path, port: int, security: LocalSecurity | None) -> _Server:
    endpoint = f"127.0.0.1:{port}"
    command = [
        *(sys.executable, "-P", "-m", "tandemlog", "coordinator"),
        *("--dir", str(directory / "coordinator"), "--listen", endpoint),
        *("--with-parent", str(os.getpid())),
    ]
    if security is not None:
        command += [
            *("--ca-file", str(security.authority)),
            *("--cert-file", str(security.file(COORDINATOR, "crt"))),
            *("--key-file", str(security.file(COORDINATOR, "key"))),
            *("--allow-client", OPERATOR),
        ]
    return _Server("coordinator", endpoint, command, directory / "coordinator.log")


def _etcd(directory: Path, first: int, number: int, security: LocalSecurity | None) -> _Server:
    scheme = "http" if security is None else "https"
    clients = [f"127.0.0.1:{first + each}" for each in range(MEMBERS)]
    peers = [f"{scheme}://127.0.0.1:{first + MEMBERS + each}" for each in range(MEMBERS)]
    name = f"etcd-{number}"
    command = [
        # etcd has no option to end with its parent, and a terminal's Ctrl-C is not for it
        *(
            sys.executable,
            "-P",
            "-m",
            "tandemlog_server.node.process.with_parent",
            str(os.getpid()),
            "etcd",
        ),
        f"--name={name}",
        f"--data-dir={directory / name}",
        f"--listen-client-urls={scheme}://{clients[number]}",
        f"--advertise-client-urls={scheme}://{clients[number]}",
        f"--listen-peer-urls={peers[number]}",
        f"--initial-advertise-peer-urls={peers[number]}",
        "--initial-cluster=" + ",".join(f"etcd-{each}={peer}" for each, peer in enumerate(peers)),
        "--log-level=warn",
    ]
    if security is not None:
        for peer in ("", "peer-"):
            command += [
                f"--{peer}trusted-ca-file={security.authority}",
                f"--{peer}cert-file={security.file(COORDINATOR, 'crt')}",
                f"--{peer}key-file={security.file(COORDINATOR, 'key')}",
                f"--{peer}client-cert-auth",
            ]
    return _Server(name, clients[number], command, directory / f"{name}.log")
