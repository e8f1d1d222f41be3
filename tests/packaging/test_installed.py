"""The wheel in environments of its own: a plain client, and a project with names like ours.

Nothing is downloaded: the other packages are those of this environment, file by file as links, and
no more of them than the wheel asks for.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

pytestmark = [pytest.mark.cluster, pytest.mark.lane("machine")]

THEIRS = ("storage", "ha", "node", "proto", "cli", "rocketmq")
"""Packages of a user that are named as folders of ours."""
MOST_PACKAGES, MOST_BYTES = 8, 60_000_000


def needs_of(wheel: Path, extra: str = "") -> list[Requirement]:
    """What the wheel asks for, with an extra or without one."""
    with ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        said = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    found = []
    for need in map(Requirement, said):
        if need.marker is None or need.marker.evaluate({"extra": extra}):
            if need.name != "tandemlog":
                found.append(need)
            for each in need.extras if need.name == "tandemlog" else ():
                found += needs_of(wheel, each)
    return found


def closure(needs: Iterable[Requirement]) -> dict[str, Distribution]:
    """The distributions that these bring, by name."""
    found: dict[str, Distribution] = {}
    left = list(needs)
    while left:
        need = left.pop()
        name = need.name.lower().replace("_", "-")
        if name in found:
            continue
        try:
            here = found[name] = distribution(name)
        except PackageNotFoundError:
            pytest.fail(f"{name} is needed and not installed")
        for text in here.requires or []:
            inner = Requirement(text)
            extras = [*need.extras, ""]
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                left.append(inner)
    return found


def files_of(dist: Distribution) -> Iterator[tuple[str, Path]]:
    """Each file below site-packages, by its name there."""
    for file in dist.files or []:
        path = Path(str(file.locate()))
        if ".." not in file.parts and path.is_file():
            yield str(file), path


class Environment:
    """A virtual environment with the packages of `needs`, and then the wheel."""

    def __init__(self, folder: Path, wheel: Path, needs: Iterable[Requirement]) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.bin = folder / "bin"
        (self.site,) = folder.glob("lib/python3*/site-packages")
        self.wheel = wheel
        for dist in closure(needs).values():
            for name, path in files_of(dist):
                link = self.site / name
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    link.symlink_to(path)

    def pip(self, *arguments: str | Path) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "--quiet"]
        subprocess.run([*pip, *arguments], check=True, timeout=300, cwd="/")

    def install(self) -> None:
        self.pip("install", "--no-deps", "--no-index", "--no-compile", self.wheel)

    def run(
        self, *command: str, cwd: Path | str = "/", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """A program of the environment."""
        dropped = ("PYTHONPATH", "TANDEMLOG_", "PYTEST_", "COV_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            cwd=cwd,
            env={**clean, "PATH": f"{self.bin}:{os.environ['PATH']}", **env},
        )


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, wheel_path: Path) -> Environment:
    made = Environment(tmp_path_factory.mktemp("client"), wheel_path, needs_of(wheel_path))
    made.install()
    return made


def test_a_client_is_light(wheel_path: Path) -> None:
    dists = closure(needs_of(wheel_path))
    with ZipFile(wheel_path) as archive:
        size = sum(each.file_size for each in archive.infolist())
    for dist in dists.values():
        size += sum(path.stat().st_size for name, path in files_of(dist) if ".pyc" not in name)
    assert len(dists) + 1 <= MOST_PACKAGES, sorted(dists)
    assert size <= MOST_BYTES


def test_a_client_needs_no_more(client: Environment) -> None:
    names = "Producer, Consumer, Admin, AsyncProducer, AsyncConsumer, AsyncAdmin"
    done = client.run("python", "-c", f"from tandemlog import {names}")
    assert done.returncode == 0, done.stderr
    assert client.run("python", "-c", "import numpy").returncode == 1


@pytest.mark.parametrize(
    "command",
    [
        ("tandemlog", "--version"),
        ("python", "-m", "tandemlog", "list"),
        ("python", "-c", "from tandemlog.testing import Cluster"),
    ],
    ids=["program", "module", "testing"],
)
def test_a_client_is_told_what_a_server_needs(
    client: Environment, command: tuple[str, ...]
) -> None:
    done = client.run(*command)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("which is not installed: pip install 'tandemlog[server]'"), done.stderr
    if command[-1] in ("--version", "list"):
        assert len(done.stderr.strip().splitlines()) == 1


TEST_OF_A_USER = """
import ha, node, proto, storage
import tandemlog, tandemlog.testing

def test_own_names(tandemlog_cluster, tandemlog_topic):
    assert [each.OF_A_USER for each in (storage, node, ha, proto)] == [True] * 4
    with tandemlog.Producer(tandemlog_cluster.endpoint) as producer:
        assert producer.send(tandemlog.Message(tandemlog_topic, b"x")).result().queue_offset == 0
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in THEIRS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("OF_A_USER = True\n")
    (folder / "pytest.ini").touch()  # or pytest looks for one above the project
    (folder / "tests").mkdir()
    (folder / "tests" / "test_own_names.py").write_text(TEST_OF_A_USER)
    return folder


def contents(folder: Path, *names: str) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in names
        for path in (folder / name).rglob("*.py")
    }


def test_a_project_with_such_names(tmp_path: Path, project: Path, wheel_path: Path) -> None:
    needs = [*needs_of(wheel_path, "server"), Requirement("pytest")]
    environment = Environment(tmp_path / "venv", wheel_path, needs)
    for name in THEIRS:  # as if the project itself were installed there
        (environment.site / name).mkdir()
        (environment.site / name / "__init__.py").write_text("OF_A_USER = True\n")
    before = contents(project, "."), contents(environment.site, *THEIRS)
    environment.install()
    here = {"PYTHONPATH": ".", "PYTHONDONTWRITEBYTECODE": "1"}
    tests = ("-q", "-p", "no:cacheprovider", "tests")
    for command in (
        ("tandemlog", "--version"),
        ("tandemlog", "node", "--help"),
        ("tandemlog", "recover", "--help"),
        ("python", "-m", "tandemlog", "up", "--help"),
        ("python", "-m", "pytest", *tests),
        ("python", "-m", "pytest", "--import-mode=importlib", *tests),
    ):
        done = environment.run(*command, cwd=project, **here)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert (contents(project, "."), contents(environment.site, *THEIRS)) == before
    environment.pip("uninstall", "--yes", "tandemlog")
    assert (contents(project, "."), contents(environment.site, *THEIRS)) == before
    left = [each.name for each in environment.site.iterdir() if "tandemlog" in each.name]
    assert left == []
