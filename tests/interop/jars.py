"""The released jars of RocketMQ and our Java programs, and the command that runs one of them.

jars(version)     copied once by Maven into tests/interop/target (ignored by git), and compiled
"""

import fcntl
import functools
import os
import socket
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE / "target"
# what runs where a caller names no version; another one e.g. to make stores of it
VERSION = os.environ.get("ROCKETMQ_VERSION", "5.5.0")
LOGGING = '<configuration><root level="ERROR"/></configuration>\n'
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
        folder = _fetched(version)
        classes = _compiled(version, folder)
    return f"{classes}:{folder}/*"


def _fetched(version: str) -> Path:
    folder = TARGET / version
    done = TARGET / f"{version}.complete"
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
            cwd=HERE,
            check=True,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )
        done.touch()
    return folder


def _compiled(version: str, folder: Path) -> Path:
    sources = sorted((HERE / "java").glob("*.java"))
    classes = TARGET / f"{version}-classes"
    compiled = [classes / f"{source.stem}.class" for source in sources]
    newest = max(source.stat().st_mtime for source in sources)
    if not all(each.exists() and each.stat().st_mtime >= newest for each in compiled):
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
    return classes


def java(
    main: str, *arguments: str, home: Path, memory: str = "512m", version: str = VERSION
) -> list[str]:
    """The command that runs `main` of RocketMQ or of interop/java.

    RocketMQ looks for an address of this machine as it starts. If interfaces come and go meanwhile
    (containers, namespaces of other tests) it ends with a NullPointerException: java/Made.java
    makes and starts a client again, and rocketmq.py a broker. If no interface has an
    address it falls back on the machine's name, and ends so too if no host has that name; here one
    has.
    """
    home.mkdir(parents=True, exist_ok=True)
    hosts = home / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    return [
        "java",
        f"-Xmx{memory}",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        f"-Duser.home={home}",
        f"-Djdk.net.hosts.file={hosts}",
        # or each server makes a certificate at its start, a second of a core
        "-Dtls.server.mode=disabled",
        *OPENS,
        "-cp",
        jars(version),
        main,
        *arguments,
    ]
