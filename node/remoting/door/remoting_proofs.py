"""How a client of RocketMQ proves who it is: by a signature of each request, or a certificate.

    AccessKey      name of a secret that client and node share
    Signature      Base64(HMAC-SHA1(secret, text))
    text           the values of all other extFields, in the order of their keys, then the body

The rule is that of RocketMQ's AclUtils, the same in 4.x and 5.x. Clients before 4.9.4 leave the
field _UNIQUE_KEY_QUERY out of the text. A C++ client without a secret sends an empty AccessKey
with a signature by an empty secret: it does not try to log in. As with a token, a key that is shown
wins over the certificate of the connection.
"""

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha1
from typing import Final

from tandemlog_server.rocketmq.clients.handed_on import is_handed_on
from tandemlog_server.rocketmq.wire.remoting import Command

from ...access.access_refusals import NotKnownError
from ...access.caller import Who
from ...access.doorkeeper import NO_CERTIFICATE, Doorkeeper

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
PROOFS: Final = frozenset({ACCESS_KEY, SIGNATURE, "SecurityToken"})
"""Fields that are for this node alone: neither a log nor another client gets them."""
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"

NO_PROOF: Final = (
    "this node has to know who calls: give the client the access key and the secret of an identity "
    "of its access file (AclClientRPCHook), or a certificate that the node knows"
)
WRONG_SIGNATURE: Final = (
    "the signature of the request is not that of this access key: the client has another secret"
)


def who_signed(keeper: Doorkeeper, request: Command, certificate: bytes | None) -> Who:
    """Who sent `request`. Raises NotKnownError. The certificate of a node that hands a request on
    lets the connection in, and lends the request no rights."""
    fields = request.fields
    access_key = fields.get(ACCESS_KEY, "")
    if not keeper.certificates_required:
        certificate = None  # as at the other doors: one that is not asked for proves nothing
    elif certificate is None:
        raise NotKnownError(NO_CERTIFICATE)
    elif is_handed_on(request):
        certificate = None
    if not access_key:
        if certificate is None:
            raise NotKnownError(NO_PROOF)
        return keeper.identify("", certificate)
    who, secret = keeper.identify_key(access_key, certificate)
    if not signed_by(secret, fields, request.body):
        raise NotKnownError(WRONG_SIGNATURE)
    return who


def signed_by(secret: str, fields: Mapping[str, str], body: bytes) -> bool:
    """Whether the fields have the signature of `secret`."""
    shown = fields.get(SIGNATURE, "").encode(errors="replace")
    key = secret.encode()
    if hmac.compare_digest(shown, _signature(key, fields, body)):
        return True
    if UNIQUE_KEY_QUERY not in fields:
        return False
    older = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    return hmac.compare_digest(shown, _signature(key, older, body))


def without_proofs(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields as another one may see them."""
    return {name: value for name, value in fields.items() if name not in PROOFS}


def signature_of(secret: str, fields: Mapping[str, str], body: bytes) -> str:
    """As a client makes it."""
    return _signature(secret.encode(), fields, body).decode()


def _signature(key: bytes, fields: Mapping[str, str], body: bytes) -> bytes:
    text = "".join([fields[name] for name in sorted(fields) if name != SIGNATURE])
    return base64.b64encode(hmac.digest(key, text.encode(errors="replace") + body, sha1))
