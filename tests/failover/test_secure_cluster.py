"""`tandemlog up --secure`, end to end: what it prints works, strangers stay outside, and all that
protects it is replaced while a producer sends."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.made_certificates import Authority, now
from helpers.running import ROOT, first_of_free_row, wait_until
from tandemlog import Admin, ConnectionOptions, Message, Producer, ProducerOptions, Security
from tandemlog.cluster.elections import ClusterChange
from tandemlog.errors import AuthenticationError, NodeUnavailableError, TandemlogError
from tandemlog_server.cli.local.local_security import HOSTS, LocalSecurity
from tandemlog_server.node.certs.folder import cluster_in, make_certificate
from tandemlog_server.node.certs.owners import Owner, OwnerKind

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

NODES = ("n0", "n1", "n2")
QUICK = ConnectionOptions(retry_timeout_ms=2_000)


class Up:
    """The program in the foreground, and what it printed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "up.log"
        self.port = first_of_free_row(3)
        command = ("up", "--secure", "--dir", str(folder / "data"), "--port", str(self.port))
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tandemlog", *command], cwd=ROOT, stdout=out, stderr=out
            )

    def said(self) -> str:
        return self.out.read_text()

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.said()
        return "or by options: " in self.said()

    @property
    def security(self) -> LocalSecurity:
        return LocalSecurity(self.folder / "data", "")

    @property
    def endpoints(self) -> list[str]:
        return [f"127.0.0.1:{self.port + each}" for each in range(3)]

    def run(self, *arguments: str, feed: str = "", environment: bool = True) -> str:
        """The program with the profile that `up` has printed; its output."""
        done = self.ended(*arguments, feed=feed, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ended(
        self, *arguments: str, feed: str = "", environment: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """As `run`, however it ends."""
        more = {"TANDEMLOG_CONFIG_DIR": str(self.security.folder)} if environment else {}
        return subprocess.run(
            [sys.executable, "-m", "tandemlog", *arguments],
            cwd=ROOT,
            input=feed,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, **more},
        )


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    made = Up(tmp_path_factory.mktemp("secure"))
    try:
        wait_until("the cluster to be ready", made.is_ready, 180)
        yield made
    finally:
        made.process.terminate()
        made.process.wait(60)
    assert "stopped cleanly" in made.said()


def test_what_it_prints_is_enough_to_connect(up: Up) -> None:
    assert f"export TANDEMLOG_CONFIG_DIR={up.security.folder};" in up.said()
    up.run("--cluster", "local", "topic", "create", "t", "--queues", "1")
    up.run("put", "t", "--cluster", "local", feed="a\nb\n")
    options = up.said().partition("or by options: ")[2].splitlines()[0].split()
    there = ("--endpoint", up.endpoints[1], *options)
    assert up.run("pull", "t", "--format", "jsonl", *there, environment=False).count("\n") == 2
    wait_until(
        "all to be in sync", lambda: "OK:" in up.ended("check", "--cluster", "local").stdout, 90
    )


def test_strangers_stay_outside(up: Up, tmp_path: Path) -> None:
    ours, theirs = up.security.client, Authority(tmp_path / "theirs", "local")
    stranger = theirs.client("operator", ca_file=ours.ca_file)
    ca_only = Security(ca_file=ours.ca_file, token_file=ours.token_file)
    wrong = Security(ours.ca_file, ours.cert_file, ours.key_file, token="tl_wrong")
    deceived = Security(theirs.ca_file, ours.cert_file, ours.key_file)
    for security, words in (
        (Security(token_file=ours.token_file), "no gRPC without TLS there"),
        (ca_only, "the node requires a client certificate"),
        (stranger, "is signed by another authority than that of ca_file"),
        (deceived, "the node's certificate is signed by another authority"),
        (wrong, "the token is not one of the access file"),
    ):
        with Admin(up.endpoints, connection=QUICK, security=security) as admin:
            said: list[str] = []

            def told(admin: Admin = admin, said: list[str] = said, words: str = words) -> bool:
                """Refused each time; the reason is found out beside the attempts."""
                with pytest.raises((AuthenticationError, NodeUnavailableError)) as refused:
                    admin.topics()
                said.append(str(refused.value))
                assert "tl_" not in said[-1]
                return words in said[-1]

            wait_until(lambda words=words, said=said: f"{words}, not {said[-1:]}", told, 60)  # type: ignore[misc]


class Load:
    """Puts one message after the other until the block ends."""

    def __init__(self, up: Up) -> None:
        self.sent, self.failed = 0, list[TandemlogError]()
        self._end = threading.Event()
        self._up = up
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def more(self) -> None:
        """Wait for some puts that begin now."""
        goal = self.sent + 20
        wait_until("puts to be acknowledged", lambda: self.sent >= goal or bool(self.failed), 90)

    def _send(self) -> None:
        options = ProducerOptions(linger_ms=0)
        security = self._up.security.client
        with Producer(self._up.endpoints, options, security=security) as producer:
            while not self._end.is_set():
                try:
                    producer.send(Message("load", b"x")).result(60)
                    self.sent += 1
                except TandemlogError as error:
                    self.failed.append(error)
                    return


def test_everything_is_replaced_under_load(up: Up, tmp_path: Path) -> None:
    """Every certificate, and the operator's token; then new connections, by a switch."""
    security = up.security
    access, token_file = str(security.access_file), security.file("operator", "token")
    files = security.client
    old = Security(
        files.ca_file, files.cert_file, files.key_file, token=token_file.read_text().strip()
    )
    with Admin(up.endpoints, security=security.client) as admin:
        admin.create_topic("load", 1)
        master = admin.cluster().master_id
        with Load(up) as load:
            load.more()
            up.run("token", "new", "operator", "--access", access, "--out", str(token_file))
            cluster = cluster_in(security.folder)
            for kind, name in (
                *((OwnerKind.NODE, node) for node in NODES),
                (OwnerKind.COORDINATOR, "coordinator"),
                (OwnerKind.CLIENT, "operator"),
            ):
                hosts = () if kind is OwnerKind.CLIENT else HOSTS
                make_certificate(security.folder, Owner(cluster, kind, name), hosts, 1, now())
            load.more()

            def knows_the_new() -> bool:
                with Admin(up.endpoints, security=security.client) as other:
                    if is_refused(other):  # a client that begins now has no older token
                        return False
                logs = [up.folder / "data" / name / "node.log" for name in NODES]
                return all("new certificates are in use" in log.read_text() for log in logs)

            wait_until("the nodes to use the new files", knows_the_new, 90)
            up.run("token", "revoke", "operator", "--but-newest", "--access", access)
            with Admin(up.endpoints, security=old) as revoked:
                wait_until("the old token to be refused", lambda: is_refused(revoked), 90)
            load.more()
            admin.change_cluster(ClusterChange.SWITCHOVER, request_id="a")
            wait_until("the switch", lambda: admin.cluster().master_id not in ("", master), 90)
            load.more()
    assert load.failed == []
    assert load.sent >= 80


def is_refused(admin: Admin) -> bool:
    try:
        admin.topics()
    except AuthenticationError:
        return True
    return False


def test_the_cluster_outlives_its_operators_token(up: Up) -> None:
    """`up` itself asks the nodes with it. The last test here: nothing gets in afterwards."""
    up.run("token", "revoke", "operator", "--access", str(up.security.access_file))
    wait_until("up to be refused", lambda: "the nodes cannot be asked: " in up.said(), 90)
    assert up.process.poll() is None
