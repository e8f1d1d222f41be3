"""What each group of tests needs of the machine, and what to install where it is missing.

A group whose needs are missing is skipped with one line that says so. With CI=true a missing need
is a failure instead: CI installs everything, so there a skip would hide a broken installation.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"


def _commands(*names: str) -> str:
    missing = [name for name in names if shutil.which(name) is None]
    return f"not on PATH: {', '.join(missing)}" if missing else ""


def _root() -> str:
    return "" if os.geteuid() == 0 else "needs root"


def _docker() -> str:
    missing = _commands("docker")
    if missing:
        return missing
    answer = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=30)
    return "" if answer.returncode == 0 else "no Docker engine answers"


def _java() -> str:
    return _commands("java")


def _namespaces() -> str:
    """In a container root may lack the right to make one."""
    missing = _root() or _commands("ip", "nsenter", "iptables", "sysctl", "setpriv", "etcd")
    if missing:
        return missing
    name = f"tl{os.getpid()}x-probe"
    made = _succeeds("ip", "netns", "add", name)
    inside = ("nsenter", f"--net=/run/netns/{name}")
    works = made and _succeeds(*inside, "iptables", "-w", "-L", "FORWARD")
    if made:
        _succeeds("ip", "netns", "del", name)
    return "" if works else "network namespaces and iptables do not work here"


def _fuse() -> str:
    """A container lacks /dev/fuse unless it is given one."""
    missing = _root() or _commands("losetup", "mkfs.ext4", "e2fsck", "mount", "umount")
    if missing:
        return missing
    if find_library("fuse3") is None or find_spec("mfusepy") is None:
        return "needs libfuse3 and mfusepy"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as problem:
        return f"the kernel gives no FUSE here: {problem}"
    return "" if _succeeds("losetup", "--find") else "the kernel gives no loop device here"


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


NEEDS: dict[str, Callable[[], str]] = {
    "fuse": _fuse,
    "fault": lambda: _root() or _commands("mount", "umount"),
    "browser": lambda: _commands("chromium"),
    "interop": lambda: _commands("java", "javac", "mvn"),
    "docker": lambda: _root() or _docker(),
    "netns": _namespaces,
    "spark": _java,
}


@cache
def missing(group: str) -> str:
    """Why `group` cannot run here; empty where it can."""
    need = NEEDS.get(group)
    return need() if need is not None else ""


def cannot_run(reason: str) -> NoReturn:
    """End the test that needs what is missing: skipped, or failed if it must run."""
    if must_run():
        pytest.fail(reason)
    pytest.skip(reason)


def must_run() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")
