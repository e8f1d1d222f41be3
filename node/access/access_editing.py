"""Changes of an access file that keep what people wrote in it: comments, order and layout.

    [[identity]]
    name = "orders"
    tokens = ["sha256:9f86d0…"]       token new adds one, token revoke takes it out
    read = ["orders-*"]               token new adds patterns

An identity may have several tokens, so that a new one is there before the old one goes. The file is
replaced whole, and two changes at the same time are kept apart by a lock on the folder.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Table

from ..private_files import replace_text
from .identities import HASH

_LISTS = ("read", "write", "consume", "certificates")
_HEAD = (
    "Who may do what on the nodes of this cluster. `tandemlog token` adds and removes tokens;",
    "the rights may be changed by hand: nodes read the file again by themselves.",
)


class AccessEditError(Exception):
    """An access file that cannot be changed so; the message names the file and the identity."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What an identity gets, beside what it has."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    consume: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    admin: bool = False
    node: str = ""


@contextmanager
def edited(path: Path) -> Iterator["AccessFile"]:
    """The file, to be changed; written when the block ends well. Raises AccessEditError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        file = read_access(path, may_lack=True)
        yield file
        file.write()
        os.fsync(handle)
    finally:
        os.close(handle)


def read_access(path: Path, *, may_lack: bool = False) -> "AccessFile":
    """Raises AccessEditError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not may_lack:
            raise AccessEditError(f"{path} does not exist") from None
        text = "".join(f"# {line}\n" for line in _HEAD)
    try:
        document = tomlkit.parse(text)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise AccessEditError(f"{path} is not TOML: {error}") from error
    return AccessFile(path, document)


class AccessFile:
    """The identities of one file."""

    def __init__(self, path: Path, document: tomlkit.TOMLDocument) -> None:
        self.path = path
        self._document = document

    def identities(self) -> list[dict[str, Any]]:
        """As the file has them."""
        return [dict(table.unwrap()) for table in self._tables()]

    def add_token(self, name: str, token_hash: str, grant: Grant) -> bool:
        """The identity `name`, which is made if it is not there, gets one more token, and what
        `grant` says. Returns whether it was there. Raises AccessEditError where it has another
        node."""
        there = [table for table in self._tables() if table.get("name") == name]
        table = there[0] if there else self._new(name)
        if grant.node:
            node = table.get("node", "")
            if node not in ("", grant.node):
                raise AccessEditError(
                    f"{self.path}: identity {name!r} is that of node {node!r}: give another name"
                )
            table["node"] = grant.node
        if grant.admin:
            table["admin"] = True
        for key in _LISTS:
            _extend(table, key, getattr(grant, key))
        _extend(table, "tokens", (token_hash,))
        return bool(there)

    def revoke(self, name: str, prefix: str = "", *, keep_newest: bool = False) -> int:
        """Take out the tokens of `name`: all, those whose hash begins with `prefix`, or all but
        the one that was added last. Returns how many. Raises AccessEditError."""
        table = next((each for each in self._tables() if each.get("name") == name), None)
        if table is None:
            there = ", ".join(str(each.get("name")) for each in self._tables()) or "none"
            raise AccessEditError(f"{self.path} has no identity {name!r}; there: {there}")
        hashes = [str(each) for each in table.get("tokens", ())]
        revoked = [each for each in hashes if each.removeprefix(HASH).startswith(prefix)]
        if keep_newest and hashes[-1:] == revoked[-1:]:
            revoked = revoked[:-1]
        if prefix and not revoked:
            raise AccessEditError(
                f"{self.path}: no token of {name!r} begins with {prefix!r}; `tandemlog token list` "
                "shows the beginnings"
            )
        table["tokens"] = _array([each for each in hashes if each not in revoked])
        return len(revoked)

    def write(self) -> None:
        """In the place of the file, readable by its owner, or by whom it was readable before."""
        replace_text(self.path, tomlkit.dumps(self._document))

    def _tables(self) -> list[Table]:
        tables = self._document.get("identity")
        if tables is None:
            return []
        if not isinstance(tables, AoT):
            raise AccessEditError(f"{self.path}: identity must be tables, each as [[identity]]")
        return list(tables.body)

    def _new(self, name: str) -> Table:
        table = tomlkit.table()
        table["name"] = name
        for last in self._tables()[-1:]:
            last.add(tomlkit.nl())
        tables = self._document.get("identity")
        if tables is None:
            tables = tomlkit.aot()
            self._document["identity"] = tables
            tables = self._document["identity"]
        tables.append(table)
        return self._tables()[-1]


def _extend(table: Table, key: str, values: tuple[str, ...]) -> None:
    present = [str(each) for each in table.get(key, ())]
    new = [each for each in values if each not in present]
    if new:
        table[key] = _array([*present, *new])


def _array(values: list[str]) -> Any:
    array = tomlkit.array()
    array.extend(values)
    return array.multiline(len(values) > 1)
