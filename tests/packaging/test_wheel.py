"""The wheel holds every file of the packages, and says what it is."""

import subprocess
from configparser import ConfigParser
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from helpers.running import ROOT
from tandemlog_server.ha.protocol.versions import VERSION

SERVER = ("storage", "ha", "rocketmq", "node", "cli")
"""Folders that are installed below tandemlog_server."""
TOP = {"tandemlog", "tandemlog_server", "pyspark_tandemlog", "pyspark_tandemlog_segments"}


@pytest.fixture(scope="module")
def wheel(wheel_path: Path) -> dict[str, bytes]:
    """What is in the wheel, by name."""
    with ZipFile(wheel_path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: dict[str, bytes]) -> Message:
    (name,) = (each for each in wheel if each.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel[name])


def installed_as(name: str) -> str:
    return f"tandemlog_server/{name}" if name.split("/")[0] in SERVER else name


def test_it_holds_what_git_does(wheel: dict[str, bytes]) -> None:
    names = ("git", "ls-files", *SERVER, "tandemlog", "tandemlog_server", "pyspark_tandemlog*.py")
    listed = subprocess.run(names, capture_output=True, text=True, check=True, cwd=ROOT)
    expected = {
        installed_as(each) for each in listed.stdout.splitlines() if (ROOT / each).is_file()
    }
    assert expected >= {
        "tandemlog/spark/log4j2.properties",
        "tandemlog/py.typed",
        "tandemlog_server/py.typed",
        *(f"tandemlog_server/{each}/py.typed" for each in SERVER),
    }
    held = {name for name in wheel if ".dist-info/" not in name}
    assert expected - held == set(), "git has them, the wheel has not"
    assert held - expected == set(), "the wheel has them, git has not: add or remove them"


def test_it_takes_no_name_that_a_user_may_have(wheel: dict[str, bytes]) -> None:
    top = {name.split("/")[0].removesuffix(".py") for name in wheel if ".dist-info/" not in name}
    assert top == TOP


def test_the_license_is_in_it(wheel: dict[str, bytes]) -> None:
    (name,) = (each for each in wheel if each.endswith(".dist-info/licenses/LICENSE"))
    assert wheel[name] == (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in wheel[name]
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_pytest_finds_the_fixtures(wheel: dict[str, bytes]) -> None:
    (name,) = (each for each in wheel if each.endswith(".dist-info/entry_points.txt"))
    said = ConfigParser()
    said.read_string(wheel[name].decode())
    assert dict(said["pytest11"]) == {"tandemlog": "tandemlog.testing.pytest_plugin"}


def test_it_says_what_it_is(wheel: dict[str, bytes]) -> None:
    said = metadata(wheel)
    assert said["Version"] == VERSION
    links = dict(each.split(", ") for each in said.get_all("Project-URL", []))
    assert set(links) == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    extras = {
        "archive",
        "arrow",
        "columns",
        "server",
        "spark",
        "connect",
        "lz4",
        "otel",
        "zstd",
        "dev",
    }
    assert set(said.get_all("Provides-Extra", [])) == extras | {"dev"}
