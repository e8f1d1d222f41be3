"""Make a release: the version, the changelog, the files in dist/, a commit and its tag.

usage: python scripts/release.py 0.3.0 [--no-build]

The version is in one place, ha/protocol/versions.py; pyproject.toml and the program read it there.
What the changelog has below "Unreleased" becomes the section of the version. The script builds
before it commits, and pushes nothing: it prints what is left to do.
"""

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

VERSIONS = Path("ha/protocol/versions.py")
CHANGELOG = Path("CHANGELOG.md")
_VERSION = re.compile(r'^VERSION = "(\d+\.\d+\.\d+)"$', re.MULTILINE)
_UNRELEASED = re.compile(r"^## Unreleased.*\n", re.MULTILINE)


class ReleaseError(Exception):
    """Why there is no release; nothing was committed."""


def current_version(source: str) -> str:
    """The version that `source`, the text of versions.py, declares."""
    found = _VERSION.findall(source)
    if len(found) != 1:
        raise ReleaseError(f'{VERSIONS} must have one line VERSION = "x.y.z", not {len(found)}')
    return str(found[0])


def with_version(source: str, version: str) -> str:
    """`source` with another version; ReleaseError for one that is older, or not x.y.z."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"{version} is no version x.y.z")
    before = current_version(source)
    if _numbers(version) < _numbers(before):
        raise ReleaseError(f"{version} is older than {before}")
    return _VERSION.sub(f'VERSION = "{version}"', source)


def with_release(changelog: str, version: str, day: datetime.date) -> str:
    """`changelog` with an empty section "Unreleased" above the release's. ReleaseError without
    changes, or if it has this version already."""
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        raise ReleaseError(f"{CHANGELOG} has {version} already")
    parts = _UNRELEASED.split(changelog)
    if len(parts) != 2:
        raise ReleaseError(f'{CHANGELOG} must have one section "## Unreleased"')
    head, rest = parts
    if not re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip():
        raise ReleaseError(f'{CHANGELOG} has no changes below "## Unreleased"')
    return f"{head}## Unreleased\n\n## {version} - {day.isoformat()}\n{rest}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split("."))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def release(version: str, *, build: bool) -> None:
    """In the current folder, the root of the repository."""
    if _run("git", "status", "--porcelain", "--untracked-files=no"):
        raise ReleaseError("there are changes that are not committed")
    tag = f"v{version}"
    if _run("git", "tag", "--list", tag):
        raise ReleaseError(f"the tag {tag} exists: choose another version, or delete the tag")
    source, changelog = VERSIONS.read_text(), CHANGELOG.read_text()
    new_source = with_version(source, version)
    new_changelog = with_release(changelog, version, datetime.datetime.now(datetime.UTC).date())
    VERSIONS.write_text(new_source)
    CHANGELOG.write_text(new_changelog)
    try:
        if build:
            _run(sys.executable, "-m", "hatchling", "build", "--directory", "dist")
        _run("git", "commit", "--quiet", "--all", "--message", f"Release {version}")
    except ReleaseError:
        VERSIONS.write_text(source)
        CHANGELOG.write_text(changelog)
        raise
    _run("git", "tag", "--annotate", tag, "--message", f"tandemlog {version}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version", help="x.y.z")
    parser.add_argument("--no-build", action="store_true", help="only commit and tag")
    given = parser.parse_args()
    try:
        release(given.version, build=not given.no_build)
    except ReleaseError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"committed and tagged v{given.version}. Left to do:")
    print("  make test")
    print("  git push --follow-tags")
    print(f"  twine upload dist/tandemlog-{given.version}*")
    print("  write the commit of the tag into tests/upgrade/previous.txt, so that the next version")
    print("  is tested as an upgrade from this one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
