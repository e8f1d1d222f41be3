"""Changes of an access file that keep what people wrote in it: comments, order and layout.

    [[identity]]
    name = "orders"
    tokens = ["sha256:9f86d0…"]       token new adds one, token revoke takes it out
    access_keys = [{ key = "orders-3f", secret = "…" }]   new-key adds one, revoke-key takes it out
    read = ["orders-*"]               token new adds patterns

An identity may have several tokens, so that a new one is there before the old one goes. The file is
replaced whole, and two changes at the same time are kept apart by a lock on the folder.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Table

from ..private_files import replace_text
from .identities import HASH
from .new_tokens import NewKey

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
        table, was_there = self._granted(name, grant)
        _extend(table, "tokens", (token_hash,))
        return was_there

    def add_key(self, name: str, key: NewKey, grant: Grant) -> bool:
        """The same with an access key of RocketMQ's clients. Raises AccessEditError for a key that
        is there already."""
        for table in self._tables():
            if key.key in _keys_of(table):
                raise AccessEditError(
                    f"{self.path}: the access key {key.key!r} is one of {table.get('name')!r}: "
                    "give another one"
                )
        table, was_there = self._granted(name, grant)
        _set_keys(table, [*table.get("access_keys", ()), {"key": key.key, "secret": key.secret}])
        return was_there

    def _granted(self, name: str, grant: Grant) -> tuple[Table, bool]:
        """The identity with the rights of `grant` added, and whether it was there."""
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
        return table, bool(there)

    def revoke(self, name: str, prefix: str = "", *, keep_newest: bool = False) -> int:
        """Take out the tokens of `name`: all, those whose hash begins with `prefix`, or all but
        the one that was added last. Returns how many. Raises AccessEditError."""
        table = self._identity(name)
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

    def revoke_keys(self, name: str, key: str = "") -> int:
        """Take out the access key `key` of `name`, or all. Returns how many. Raises
        AccessEditError."""
        table = self._identity(name)
        keys = _keys_of(table)
        if key and key not in keys:
            there = ", ".join(keys) or "none"
            raise AccessEditError(
                f"{self.path}: {name!r} has no access key {key!r}; there: {there}"
            )
        stay = [row for row in table.get("access_keys", ()) if key and row.get("key") != key]
        if keys:
            _set_keys(table, stay)
        return len(keys) - len(stay)

    def _identity(self, name: str) -> Table:
        """Raises AccessEditError."""
        table = next((each for each in self._tables() if each.get("name") == name), None)
        if table is None:
            there = ", ".join(str(each.get("name")) for each in self._tables()) or "none"
            raise AccessEditError(f"{self.path} has no identity {name!r}; there: {there}")
        return table

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


def _keys_of(table: Table) -> list[str]:
    return [str(row.get("key")) for row in table.get("access_keys", ())]


def _set_keys(table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Each a line of one array, also where people wrote them as tables."""
    values = []
    for row in rows:
        value = tomlkit.inline_table()
        value.update({str(name): str(text) for name, text in row.items()})
        values.append(value)
    table.pop("access_keys", None)
    table["access_keys"] = _array(values)


def _array(values: list[Any]) -> Any:
    array = tomlkit.array()
    array.extend(values)
    return array.multiline(len(values) > 1)
