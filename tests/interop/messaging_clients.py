"""RocketMQ's clients of the 5.x API, from their registries: fetched once, each into a folder of its
own in the user's cache, out of the tree, whose tests look at every program in it. The Python client
has the import name of another package here, so it gets a virtual environment."""

import fcntl
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tandemlog-interop"
PYTHON_VERSION, NODE_VERSION = "5.1.2", "1.0.8"
PYTHON_CLIENT = f"rocketmq-python-client=={PYTHON_VERSION}"
NODE_CLIENT = f"rocketmq-client-nodejs@{NODE_VERSION}"
JAVA_CLIENT = "5.1.0"
PROGRAMS = Path(__file__).parent / "messaging"

Program: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@functools.cache
def python_client() -> Path:
    """The Python that has the client."""
    folder = CACHE / f"python-{PYTHON_VERSION}"

    def fetch() -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, PYTHON_CLIENT], check=True)

    _once(folder, fetch)
    return folder / "bin" / "python"


@functools.cache
def node_client() -> Path:
    """NODE_PATH of the client."""
    folder = CACHE / f"node-{NODE_VERSION}"

    def fetch() -> None:
        folder.mkdir(exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run([*command, NODE_CLIENT], check=True, cwd=folder, stdout=subprocess.DEVNULL)

    _once(folder, fetch)
    return folder / "node_modules"


@functools.cache
def java_client() -> Path:
    """The folder with the jars of the client, and our program for it."""
    folder = CACHE / f"java-{JAVA_CLIENT}"

    def fetch() -> None:
        command = ["mvn", "-q", "-B", f"-Dclient.version={JAVA_CLIENT}"]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        subprocess.run(command, cwd=PROGRAMS, check=True, timeout=600, stdin=subprocess.DEVNULL)

    _once(folder, fetch)
    return folder


def _once(folder: Path, fetch: Callable[[], None]) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    done = CACHE / f"{folder.name}.complete"
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            fetch()
            done.touch()


def python_program(home: Path, *arguments: str, roots: str = "") -> "subprocess.Popen[str]":
    """What it prints in the end is a line of JSON; it writes its log below `home`. `roots` are the
    authorities that it trusts, where nodes have TLS."""
    command = [str(python_client()), str(PROGRAMS / "python_program.py"), *arguments]
    environment = {"HOME": str(home), "PYTHONPATH": ""}
    if roots:
        environment["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] = roots
    return piped(command, home, environment)


def node_program(home: Path, *arguments: str) -> "subprocess.Popen[str]":
    """As `python_program`."""
    command = ["node", str(PROGRAMS / "node_program.js"), *arguments]
    return piped(command, home, {"HOME": str(home), "NODE_PATH": str(node_client())})


def java_program(home: Path, *arguments: str) -> "subprocess.Popen[str]":
    """As `python_program`. It is compiled as it starts."""
    options = ["-XX:TieredStopAtLevel=1", f"-Duser.home={home}", "-cp", f"{java_client()}/*"]
    return piped(["java", *options, str(PROGRAMS / "JavaProgram.java"), *arguments], home)


def piped(
    command: list[str], home: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> "subprocess.Popen[str]":
    """Started in `home`, with pipes for its input and output."""
    home.mkdir(exist_ok=True)
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**os.environ, **environment},
    )


def seen_by(program: "subprocess.Popen[str]", timeout_s: float = 240) -> Any:
    """The last line that it prints."""
    try:
        out, _ = program.communicate(timeout=timeout_s)
    finally:
        program.kill()
    assert program.returncode == 0, out
    return json.loads(out.splitlines()[-1])
