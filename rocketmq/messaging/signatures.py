"""How a client of the 5.x API proves who it is: a signature of the time of its request.

    authorization   MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=HEX
    Signature       hex(HMAC-SHA1(secret, the value of x-mq-date-time))

The rule is that of RocketMQ's clients. It covers nothing of the request, and the Python client
signs local time that it calls UTC: so it proves that the caller has had the secret, as a token
does, and a port that others can listen to needs TLS.
"""

import hmac
from dataclasses import dataclass
from hashlib import sha1
from typing import Final

SCHEME: Final = "MQv2-HMAC-SHA1"
DATE_TIME: Final = "x-mq-date-time"
MOST_CHARACTERS: Final = 4_096
MOST_DATE_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Signed:
    """What a header `authorization` says; `signature` in small letters."""

    access_key: str
    signature: str


def read_authorization(text: str) -> Signed | None:
    """None for a header of another scheme, and for one without an access key: clients that have no
    key send the header too."""
    if len(text) > MOST_CHARACTERS or not text.startswith(SCHEME):
        return None
    fields: dict[str, str] = {}
    for part in text.removeprefix(SCHEME).split(","):
        name, _, value = part.strip().partition("=")
        fields[name] = value.strip()
    # RocketMQ's own Java client may add a region behind the key
    access_key = fields.get("Credential", "").partition("/")[0]
    if not access_key:
        return None
    return Signed(access_key, fields.get("Signature", "").lower())


def signature_of(secret: str, date_time: str) -> str:
    """As a client makes it, in small letters."""
    return hmac.digest(secret.encode(), date_time.encode(errors="replace"), sha1).hex()


def signed_by(secret: str, date_time: str, signed: Signed) -> bool:
    """Whether `signed` was made with this secret."""
    if not date_time or len(date_time) > MOST_DATE_CHARACTERS:
        return False
    shown = signed.signature.encode(errors="replace")
    return hmac.compare_digest(shown, signature_of(secret, date_time).encode())
