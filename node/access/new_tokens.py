"""A token: `tl_` and 256 random bits; and what is kept of it. An access key: its name and a secret.

A token is as long as a key, so no slow hash is needed to keep it from being guessed: the access
file has one SHA-256 of each. The secret of an access key is there as it is, since RocketMQ's
clients sign by it and do not send it.
"""

import secrets
from dataclasses import dataclass

from .identities import HASH, digest_of

PREFIX = "tl_"


def new_token() -> str:
    """Shown once; kept nowhere."""
    return PREFIX + secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class NewKey:
    """As RocketMQ's clients have it: accessKey, which is no secret, and secretKey."""

    key: str
    secret: str

    def tools_yml(self) -> str:
        """In the form of conf/tools.yml, which mqadmin reads."""
        return f"accessKey: {self.key}\nsecretKey: {self.secret}"


def new_access_key(name: str) -> NewKey:
    """A key of the identity `name`, unlike its others; shown once."""
    return NewKey(f"{name[:55]}-{secrets.token_hex(4)}", secrets.token_urlsafe(32))


def hash_of(token: str) -> str:
    """As the access file keeps it."""
    return HASH + digest_of(token).hex()
