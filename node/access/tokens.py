"""A token: `tl_` and 256 random bits; and what is kept of it.

A token is as long as a key, so no slow hash is needed to keep it from being guessed: the access
file has one SHA-256 of each.
"""

import hashlib
import os
import secrets
from pathlib import Path

PREFIX = "tl_"
HASH = "sha256:"


def new_token() -> str:
    """Shown once; kept nowhere."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """As the access file keeps it."""
    return HASH + hashlib.sha256(token.encode()).hexdigest()


def write_secret(path: Path, text: str) -> None:
    """A file that its owner alone can read, in the place of an older one."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(handle)
    draft.replace(path)
