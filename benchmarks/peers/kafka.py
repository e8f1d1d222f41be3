"""A released Kafka broker and confluent-kafka, fetched into build/ and run from there.

fetch_jars()     Maven copies Kafka and what it needs (pom.xml here)
fetch_client()   an environment of its own with confluent-kafka
broker(folder)   one KRaft process with its log in `folder`
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"
VERSION = "4.4.0"
CLIENT = "confluent-kafka==2.16.1"
CLUSTER_ID = "dGFuZGVtbG9nLXBlZXJzLQ"
START_S = 60.0

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def fetch_jars() -> Path:
    """The folder with the jars; raises RuntimeError saying what Maven said."""
    folder = BUILD / f"kafka-{VERSION}"
    done = BUILD / f"kafka-{VERSION}.complete"
    if not done.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        maven = ["mvn", "-q", "-B", f"-Dkafka.version={VERSION}", "-f", str(HERE / "pom.xml")]
        _run([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={folder}"])
        done.touch()
    return folder


def fetch_client() -> Path:
    """The Python that has confluent-kafka."""
    return fetch_package(CLIENT, BUILD)


def fetch_package(requirement: str, build: Path) -> Path:
    """The Python of an environment below `build` that has `requirement` (name==version)."""
    folder = build / "venv"
    python = folder / "bin" / "python"
    done = build / f"{requirement}.complete"
    if not done.exists():
        build.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "-q", requirement])
        done.touch()
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
        )
    except FileNotFoundError:
        raise RuntimeError(f"{command[0]} is not installed: the peers need it") from None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def _java(jars: Path, main: str, *arguments: str, memory: str = "2g") -> list[str]:
    return [
        "java", f"-Xms{memory}", f"-Xmx{memory}", "-XX:+UseG1GC", "-cp", f"{jars}/*", main,
        *arguments,
    ]  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[tuple[str, int]]:
    """Its address and process id; stopped at the end."""
    jars = fetch_jars()
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, control=_free_port(), folder=folder))
    ways = ("-t", CLUSTER_ID, "-c", str(settings), "--standalone")
    _run(_java(jars, "kafka.tools.StorageTool", "format", *ways, memory="256m"))
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            _java(jars, "kafka.Kafka", str(settings)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(os.environ),
        )
    try:
        _wait_for(process, port, folder / "broker.log")
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Kafka did not start: {log.read_text()[-3000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
