"""A token: `tl_` and 256 random bits; and what is kept of it.

A token is as long as a key, so no slow hash is needed to keep it from being guessed: the access
file has one SHA-256 of each.
"""

import secrets

from .identities import HASH, digest_of

PREFIX = "tl_"


def new_token() -> str:
    """Shown once; kept nowhere."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """As the access file keeps it."""
    return HASH + digest_of(token).hex()
