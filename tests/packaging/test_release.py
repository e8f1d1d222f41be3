"""scripts/release.py in a repository of its own."""

import datetime
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from helpers.running import ROOT

SCRIPT = ROOT / "scripts" / "release.py"
VERSIONS = 'A = 1\nVERSION = "0.2.0"\n"""Of this program."""\n'
CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n### Added\n- A thing.\n\n## 0.1.0 - 2026-11-23\n\n- All.\n"
)
DAY = datetime.date(2026, 12, 1)


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = spec_from_file_location("release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "ha" / "protocol").mkdir(parents=True)
    (tmp_path / "ha" / "protocol" / "versions.py").write_text(VERSIONS)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "someone")
    git(tmp_path, "config", "user.email", "someone@example.org")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "begin")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_release_is_a_commit_with_a_tag(repository: Path) -> None:
    done = run(repository, "0.2.0", "--no-build")
    assert done.returncode == 0, done.stderr
    assert "git push --follow-tags" in done.stdout
    assert git(repository, "describe", "--tags", "--exact-match") == "v0.2.0"
    assert git(repository, "log", "--format=%s", "-1") == "Release 0.2.0"
    changelog = (repository / "CHANGELOG.md").read_text()
    assert changelog.startswith("# Changelog\n\n## Unreleased\n\n## 0.2.0 - ")
    again = run(repository, "0.2.0", "--no-build")
    assert again.returncode == 1
    assert "the tag v0.2.0 exists" in again.stderr


def test_nothing_changes_where_the_tree_is_dirty_or_the_build_fails(repository: Path) -> None:
    assert run(repository, "0.3.0").returncode == 1, "there is no pyproject.toml to build from"
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""
    assert (repository / "ha" / "protocol" / "versions.py").read_text() == VERSIONS
    (repository / "CHANGELOG.md").write_text("else")
    done = run(repository, "0.3.0", "--no-build")
    assert "not committed" in done.stderr
    assert git(repository, "tag") == ""


def test_the_version_grows(release: ModuleType) -> None:
    assert release.current_version(release.with_version(VERSIONS, "0.10.0")) == "0.10.0"
    for version, words in (("0.1.9", "older"), ("1.0", "no version"), ("1.0.0rc1", "no version")):
        with pytest.raises(release.ReleaseError, match=words):
            release.with_version(VERSIONS, version)
    with pytest.raises(release.ReleaseError, match="one line"):
        release.current_version(VERSIONS * 2)


def test_the_changes_get_their_version(release: ModuleType) -> None:
    released = release.with_release(CHANGELOG, "0.2.0", DAY)
    assert "## Unreleased\n\n## 0.2.0 - 2026-12-01\n\n### Added\n- A thing.\n" in released
    with pytest.raises(release.ReleaseError, match="no changes"):
        release.with_release(released, "0.3.0", DAY)
    with pytest.raises(release.ReleaseError, match="already"):
        release.with_release(CHANGELOG, "0.1.0", DAY)
    with pytest.raises(release.ReleaseError, match="Unreleased"):
        release.with_release("# Changelog\n", "0.1.0", DAY)


def test_this_repository_can_be_released(release: ModuleType) -> None:
    """Its version is where the script looks for it, and its changelog has the form."""
    assert release.current_version((ROOT / release.VERSIONS).read_text())
    release.with_release((ROOT / release.CHANGELOG).read_text(), "99.0.0", DAY)
    assert shutil.which("git")
