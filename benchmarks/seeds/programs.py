"""The Java programs of java/: compiled into build/seeds, and asked line by line.

    with JavaProgram("RawLoad", folder) as raw:
        raw.ask("send", port, "bench", 64, 8, 3)      {"requests": 60000, "seconds": 3.001, ...}

A program lives for all measurements of a run, so that what the JVM has compiled stays compiled.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

from benchmarks.harness.nodes import cpu_seconds_of
from benchmarks.peers.kafka import ROOT

SOURCES = Path(__file__).resolve().parent / "java"
BUILD = ROOT / "build" / "seeds"
FULL_SPEED = ("-XX:+UseG1GC",)
"""Options of a JVM whose speed is measured: both compilers, and the collector of a server."""
HEAP = "1g"


def compiled(main: str, class_path: str) -> str:
    """The class path with `main` of java/, and what it uses, in front. Raises RuntimeError with
    what the compiler said."""
    classes = BUILD / main
    source = SOURCES / f"{main}.java"
    newest = max(each.stat().st_mtime for each in SOURCES.glob("*.java"))
    made = classes / f"{main}.class"
    if not made.exists() or made.stat().st_mtime < newest:
        classes.mkdir(parents=True, exist_ok=True)
        path = ("-cp", class_path, "-sourcepath", str(SOURCES))
        try:
            done = subprocess.run(
                ["javac", "-nowarn", "-Xlint:none", *path, "-d", str(classes), str(source)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
        except FileNotFoundError:
            raise RuntimeError("javac is not installed: the programs need a JDK") from None
        if done.returncode:
            raise RuntimeError(f"{source}: {done.stderr[-2000:]}")
    return f"{classes}:{class_path}"


class JavaProgram:
    """`main` with `arguments`, in a JVM of its own; what it complains of is in `folder`."""

    def __init__(self, main: str, folder: Path, *arguments: str, class_path: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._main = main
        self._log = folder / f"{main}.log"
        path = compiled(main, class_path)
        command = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", *FULL_SPEED, f"-Duser.home={folder}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-cp", path, main, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
                env=dict(os.environ),
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far."""
        return cpu_seconds_of(self._process.pid)

    def ask(self, *words: object) -> dict[str, Any]:
        """The answer to one line. Raises RuntimeError where the program has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            # a library may print, too
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        said = self._log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self._main} ended at {' '.join(map(str, words))}:\n{said}")
