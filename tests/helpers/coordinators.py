"""Coordinators as real processes: etcd, and the embedded one; started, killed, paused.

with EtcdProcesses(folder, 3) as etcd:
    etcd.members[0].pause()
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from helpers import forked, needs
from helpers.forked import AnyProcess
from helpers.running import LOOPBACK, ROOT, Place, ServerProcess, free_ports, wait_until
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator.methods import RANGE


def etcd_or_skip() -> None:
    """Skip the test where etcd is not installed; fail it where it must run."""
    missing = [name for name in ("etcd", "etcdctl") if shutil.which(name) is None]
    if missing:
        needs.cannot_run(f"not on PATH: {', '.join(missing)}")


def openssl_or_skip() -> None:
    """As etcd_or_skip."""
    if shutil.which("openssl") is None:
        needs.cannot_run("not on PATH: openssl")


@dataclass
class Process(ServerProcess):
    """One server. `command` starts it, again and again on the same data; `program` is the checkout
    that it runs."""

    name: str
    endpoint: str
    command: list[str]
    folder: Path
    process: AnyProcess | None = None
    program: Path = ROOT
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"{self.name}.log"

    def start(self) -> "Process":
        with self.log.open("ab") as out:
            self.process = forked.start(self.command, out, cwd=self.program)
        return self

    def wait_ready(self) -> "Process":
        """Until it answers a linearizable read, without TLS and users."""

        def ready() -> bool:
            self.check()
            return self.answers()

        wait_until(f"{self.name} to answer", ready)
        return self

    def check(self) -> None:
        """AssertionError with its log, where it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended:\n{self.tail()}")

    def answers(self) -> bool:
        with grpc.insecure_channel(self.endpoint) as channel:
            call = channel.unary_unary(
                RANGE.path,
                request_serializer=pb.RangeRequest.SerializeToString,
                response_deserializer=pb.RangeResponse.FromString,
            )
            try:
                call(pb.RangeRequest(key=b"\0"), timeout=1)
            except grpc.RpcError:
                return False
        return True

    def stop(self) -> int:
        """End it cleanly; its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)


class EtcdProcesses:
    """A cluster of real etcd, on loopback if no places are given; `options` go to every member."""

    def __init__(
        self,
        folder: Path,
        members: int,
        options: Sequence[str] = (),
        scheme: str = "http",
        *,
        places: Sequence[Place] = (),
    ) -> None:
        ports = free_ports(2 * members)
        where = places or [LOOPBACK] * members
        clients = [f"{at.host}:{port}" for at, port in zip(where, ports[:members], strict=True)]
        peers = [f"{at.host}:{port}" for at, port in zip(where, ports[members:], strict=True)]
        initial = ",".join(f"e{number}=http://{peer}" for number, peer in enumerate(peers))
        self.members = [
            Process(
                f"e{number}",
                clients[number],
                [
                    *where[number].wrapper,
                    "etcd",
                    f"--name=e{number}",
                    f"--data-dir={folder}/e{number}",
                    f"--listen-client-urls={scheme}://{clients[number]}",
                    f"--advertise-client-urls={scheme}://{clients[number]}",
                    f"--listen-peer-urls=http://{peers[number]}",
                    f"--initial-advertise-peer-urls=http://{peers[number]}",
                    f"--initial-cluster={initial}",
                    "--heartbeat-interval=100",
                    "--election-timeout=1000",
                    *options,
                ],
                folder,
            )
            for number in range(members)
        ]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(each.endpoint for each in self.members)

    def __enter__(self) -> "EtcdProcesses":
        try:
            for each in self.members:
                each.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for each in self.members:
            each.kill()


class EmbeddedProcess(Process):
    """`tandemlog coordinator`; its data is in `folder`, or at `data`."""

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        place: Place = LOOPBACK,
        *,
        data: Path | None = None,
    ) -> None:
        endpoint = f"{place.host}:{port or free_ports(1)[0]}"
        self.data = data or folder / "data"
        command = [*place.wrapper, *forked.PROGRAM, "coordinator"]
        command += ["--dir", str(self.data), "--listen", endpoint]
        if place is not LOOPBACK:  # a network of the test's own
            command.append("--insecure")
        super().__init__("coordinator", endpoint, command, folder)

    def __enter__(self) -> "EmbeddedProcess":
        try:
            self.start().wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def etcdctl(endpoint: str, *arguments: str, stdin: str = "") -> str:
    """What it says on stdout; it must end well."""
    ended = subprocess.run(
        ["etcdctl", "--endpoints", endpoint, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "ETCDCTL_API": "3"},
    )
    assert ended.returncode == 0, f"etcdctl {' '.join(arguments)}: {ended.stderr}"
    return ended.stdout


def certificates(folder: Path) -> Path:
    """ca.pem, server.pem (for 127.0.0.1), client.pem and their keys, made by openssl."""
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        *("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem"),
        *("-days", "2", "-subj", "/CN=test authority"),
    )
    for name, extra in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "")):
        openssl(
            *("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr"),
            *("-subj", f"/CN={name}"),
        )
        usage = "extendedKeyUsage=serverAuth,clientAuth"
        (folder / f"{name}.ext").write_text(f"{extra}\n{usage}\n")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-out", f"{name}.pem", "-days", "2"),
            *("-extfile", f"{name}.ext"),
        )
    return folder


@contextlib.contextmanager
def paused(process: Process):  # type: ignore[no-untyped-def]
    """While the body runs."""
    process.pause()
    try:
        yield
    finally:
        process.resume()
