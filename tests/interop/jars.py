"""The released jars of RocketMQ and our Java programs, and the command that runs one of them.

jars(version)     copied once by Maven into tests/interop/target (ignored by git), and compiled
of_tests()        the same with the jars of RocketMQ's own integration tests

Beside them lies an archive of the classes that a broker loads at its start, as the JVM keeps them:
brokers, name servers and clients start with it in two thirds of the processor time or less.
"""

import contextlib
import fcntl
import functools
import os
import signal
import socket
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from helpers.running import free_ports

HERE = Path(__file__).resolve().parent
TARGET = HERE / "target"
# what runs where a caller names no version; another one e.g. to make stores of it
VERSION = os.environ.get("ROCKETMQ_VERSION", "5.5.0")
# the version whose own integration tests run
TESTS = "5.5.0"
LOGGING = '<configuration><root level="ERROR"/></configuration>\n'
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a process that lives for seconds; not for one whose speed is measured."""
OPENS = [
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
]


@functools.cache
def jars(version: str = VERSION) -> str:
    """The class path of a RocketMQ and of our Java programs, fetched and compiled where missing.

    Processes that want the same version at the same time do it one after the other.
    """
    TARGET.mkdir(exist_ok=True)
    with (TARGET / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = _fetched(HERE, version, TARGET / version)
        programs = _compiled(_sources(version), folder)
        # an archive is for one class path, in one order, of jars alone
        path = ":".join(map(str, (programs, *sorted(folder.glob("*.jar")))))
        _archived(version, path, programs)
    return path


@functools.cache
def of_tests() -> str:
    """The class path of RocketMQ's own integration tests and of interop/integration/java, whose
    classes come first: they take the place of what would start brokers."""
    TARGET.mkdir(exist_ok=True)
    with (TARGET / "integration.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        project = HERE / "integration"
        folder = _fetched(project, TESTS, TARGET / f"integration-{TESTS}")
        programs = _compiled(sorted((project / "java").glob("*.java")), folder)
    return ":".join(map(str, (programs, *sorted(folder.glob("*.jar")))))


def _archive(version: str) -> Path:
    return TARGET / f"{version}.jsa"


def _fetched(project: Path, version: str, folder: Path) -> Path:
    """The jars that the pom.xml of `project` names, in `folder`."""
    done = TARGET / f"{folder.name}.complete"
    if not done.exists():
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                f"-Drocketmq.version={version}",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={folder}",
            ],
            cwd=project,
            check=True,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )
        done.touch()
    return folder


def _sources(version: str) -> list[Path]:
    found = sorted((HERE / "java").glob("*.java"))
    if not version.startswith("4."):
        found += sorted((HERE / "java" / "since5").glob("*.java"))
    return found


def _compiled(sources: Sequence[Path], folder: Path) -> Path:
    """A jar of our Java programs, compiled against the jars of `folder`."""
    classes, jar_file = TARGET / f"{folder.name}-classes", TARGET / f"{folder.name}-programs.jar"
    newest = max(source.stat().st_mtime for source in sources)
    if not jar_file.exists() or jar_file.stat().st_mtime < newest:
        classes.mkdir(parents=True, exist_ok=True)
        for name in ("rmq.logback-test.xml", "logback-test.xml"):  # since 5.1, and before
            (classes / name).write_text(LOGGING)
        subprocess.run(
            [
                "javac",
                "-nowarn",
                "-Xlint:none",
                "-cp",
                f"{folder}/*",
                "-d",
                str(classes),
                *map(str, sources),
            ],
            check=True,
            timeout=120,
        )
        unfinished = jar_file.with_suffix(".unfinished")
        with zipfile.ZipFile(unfinished, "w") as jar:
            for each in classes.rglob("*"):
                jar.write(each, each.relative_to(classes))
        unfinished.replace(jar_file)
    return jar_file


def _archived(version: str, path: str, programs: Path) -> None:
    """Start a broker and stop it cleanly, so that the JVM writes its archive."""
    archive = _archive(version)
    if archive.exists() and archive.stat().st_mtime >= programs.stat().st_mtime:
        return
    unfinished = archive.with_suffix(".unfinished")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "conf").mkdir()
        (home / "conf" / "logback_broker.xml").write_text(LOGGING)  # see _Process
        (port,) = free_ports(1)
        config = home / "broker.properties"
        config.write_text(
            f"listenPort={port}\nhaListenPort={port + 1}\nbrokerIP1=127.0.0.1\n"
            f"storePathRootDir={home}/store\nstorePathCommitLog={home}/store/commitlog\n"
            "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=500\nmaxIndexNum=2000\n"
            "timerWheelEnable=false\n"
        )
        command = _command(
            path, home, "512m", (*QUICK_START, f"-XX:ArchiveClassesAtExit={unfinished}")
        )
        command += ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(config)]
        environment = {**os.environ, "ROCKETMQ_HOME": name}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as broker:
            try:
                deadline = time.monotonic() + 60
                while not _listens(port) and broker.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.1)
                broker.send_signal(signal.SIGTERM)
                broker.wait(60)
            finally:
                broker.kill()
    unfinished.replace(archive)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def java(
    main: str,
    *arguments: str,
    home: Path,
    memory: str = "512m",
    version: str = VERSION,
    options: Sequence[str] = QUICK_START,
) -> list[str]:
    """The command that runs `main` of RocketMQ or of interop/java; `options` are those of the JVM.

    RocketMQ looks for an address of this machine as it starts. If interfaces come and go meanwhile
    (containers, namespaces of other tests) it ends with a NullPointerException: java/Made.java
    makes and starts a client again, and rocketmq.py a broker. If no interface has an
    address it falls back on the machine's name, and ends so too if no host has that name; here one
    has.
    """
    home.mkdir(parents=True, exist_ok=True)
    path = jars(version)
    shared = f"-XX:SharedArchiveFile={_archive(version)}"
    return [*_command(path, home, memory, (*options, shared)), main, *arguments]


def java_of_tests(main: str, *arguments: str, home: Path, settings: dict[str, str]) -> list[str]:
    """The command that runs `main` of interop/integration, with system properties."""
    home.mkdir(parents=True, exist_ok=True)
    properties = (f"-D{key}={value}" for key, value in settings.items())
    command = _command(of_tests(), home, "768m", (*QUICK_START, *properties))
    return [*command, main, *arguments]


def _command(path: str, home: Path, memory: str, options: Sequence[str]) -> list[str]:
    hosts = home / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    return [
        "java",
        f"-Xmx{memory}",
        *options,
        "-Xlog:disable",  # of an archive that does not fit: without it all works as well
        f"-Duser.home={home}",
        f"-Djdk.net.hosts.file={hosts}",
        # or each server makes a certificate at its start, a second of a core
        "-Dtls.server.mode=disabled",
        *OPENS,
        "-cp",
        path,
    ]
