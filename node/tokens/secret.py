"""A token: `tl_` and 256 random bits; and what is kept of it.

A token is as long as a key, so no slow hash is needed to keep it from being guessed: the access
file has one SHA-256 of each.
"""

import hashlib
import secrets

PREFIX = "tl_"
HASH = "sha256:"


def new_token() -> str:
    """Shown once; kept nowhere."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """As the access file keeps it."""
    return HASH + hashlib.sha256(token.encode()).hexdigest()
