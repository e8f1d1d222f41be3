"""The access file: TOML with one table for each identity, checked as a whole.

    [[identity]]
    name = "orders"
    tokens = ["sha256:9f86d0…"]
    certificates = ["orders"]
    read = ["orders-*"]

A file with a fault gives no identity at all: half of the rules could be the wrong half. A fault
names the identity, by its name or else by its number, and the key; it never quotes a value, since
someone may have written a token where its hash belongs.
"""

import tomllib
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from tandemlog.format.words import quoted

from .identities import HASH, NO_LIMITS, Access, CallerLimits, Identity
from .patterns import Patterns

MAX_FAULTS = 5

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._@-]{1,64}$")]
Pattern = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f]{1,255}$")]
TokenHash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
AccessKey = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,64}$")]
Secret = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{8,256}$")]
Limit = Annotated[int, Field(gt=0)]


class AccessFileError(ValueError):
    """An access file that cannot be used; the message names the file, the identity and the key."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class LimitsRow(_Strict):
    """What the connections of one identity may use together."""

    calls: Limit | None = None
    streams: Limit | None = None
    long_polls: Limit | None = None
    bytes_in_flight: Limit | None = None
    calls_per_s: Limit | None = None
    bytes_per_s: Limit | None = None


class AccessKeyRow(_Strict):
    """What a client of RocketMQ signs by. The secret is here as it is: by a hash of it no
    signature could be checked."""

    key: AccessKey
    secret: Secret


class IdentityRow(_Strict):
    """One [[identity]]."""

    name: Name
    tokens: list[TokenHash] = []
    certificates: list[Annotated[str, StringConstraints(min_length=1, max_length=256)]] = []
    access_keys: list[AccessKeyRow] = []
    read: list[Pattern] = []
    write: list[Pattern] = []
    consume: list[Pattern] = []
    admin: bool = False
    node: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{0,64}$")] = ""
    limits: LimitsRow = LimitsRow()


class AccessRows(_Strict):
    """The whole file."""

    identity: Annotated[list[IdentityRow], Field(min_length=1)]

    @model_validator(mode="after")
    def _each_proof_is_of_one(self) -> "AccessRows":
        owners: dict[tuple[str, str], str] = {}
        for row in self.identity:
            proofs = [("name", row.name), *(("tokens", each) for each in row.tokens)]
            proofs += [("certificates", each) for each in row.certificates]
            proofs += [("access_keys", each.key) for each in row.access_keys]
            for proof in proofs:
                if proof in owners:
                    raise ValueError(_twice(proof, owners[proof], row.name))
                owners[proof] = row.name
        return self


def _twice(proof: tuple[str, str], first: str, second: str) -> str:
    key, text = proof
    if key == "name":
        return f"there are two identities with the name {quoted(text)}"
    what = {
        "tokens": "a token",
        "certificates": f"the certificate {quoted(text)}",
        "access_keys": f"the access key {quoted(text)}",
    }[key]
    where = f"{quoted(first)} and {quoted(second)}"
    return f"{key}: {what} is in {where if first != second else f'{quoted(first)} twice'}"


def parse_access(text: str, source: str) -> Access:
    """The identities in `text`, the content of the file `source`. Raises AccessFileError."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise AccessFileError(f"{source} is not TOML: {error}") from None
    try:
        rows = AccessRows(**content)
    except ValidationError as error:
        faults = [_explain(fault, content) for fault in error.errors(include_input=False)]
        if len(faults) > MAX_FAULTS:
            faults[MAX_FAULTS:] = [f"and {len(faults) - MAX_FAULTS} more"]
        raise AccessFileError(f"{source}: {'; '.join(faults)}") from None
    return _compiled(rows)


def _compiled(rows: AccessRows) -> Access:
    identities, tokens, certificates, keys = [], {}, {}, {}
    for row in rows.identity:
        limits = CallerLimits(**{key: value or 0 for key, value in row.limits})
        identity = Identity(
            row.name,
            Patterns(row.read),
            Patterns(row.write),
            Patterns(row.consume),
            row.admin,
            row.node,
            NO_LIMITS if limits == NO_LIMITS else limits,
        )
        identities.append(identity)
        for each in row.tokens:
            tokens[bytes.fromhex(each.removeprefix(HASH))] = identity
        certificates.update(dict.fromkeys(row.certificates, identity))
        keys.update({each.key: (identity, each.secret) for each in row.access_keys})
    return Access(identities, tokens, certificates, keys)


def _explain(fault: Any, content: Any) -> str:
    """One fault in words, without the value."""
    location = list(fault["loc"])
    message = str(fault["msg"]).removeprefix("Value error, ")
    if (fault["type"] == "missing" and location == ["identity"]) or fault["type"] == "too_short":
        return "it has no [[identity]], so every caller would be refused"
    if fault["type"] == "extra_forbidden":
        message = f"unknown key; valid: {', '.join(_valid_keys(location))}"
    elif "tokens" in location and fault["type"] == "string_pattern_mismatch":
        message = f'must be "{HASH}" and the 64 hexadecimal digits of the token\'s SHA-256'
    elif location[-1:] == ["secret"] and fault["type"] == "string_pattern_mismatch":
        message = "must have 8 to 256 printable characters of ASCII without spaces"
    if len(location) > 1 and location[0] == "identity":
        name = _name_of(content, location[1])
        key = ".".join(str(part) for part in location[2:])
        return f"identity {name}: {key}: {message}" if key else f"identity {name}: {message}"
    key = ".".join(str(part) for part in location)
    return f"{quoted(key)}: {message}" if key else message


_BELOW: dict[str, type[BaseModel]] = {"limits": LimitsRow, "access_keys": AccessKeyRow}


def _valid_keys(location: list[Any]) -> list[str]:
    model: type[BaseModel] = AccessRows
    if len(location) > 2:
        model = _BELOW.get(str(location[2]), IdentityRow) if len(location) > 3 else IdentityRow
    return sorted(model.model_fields)


def _name_of(content: Any, number: Any) -> str:
    """How the file names its identity `number`, which may lack a name."""
    try:
        name = content["identity"][number]["name"]
    except (LookupError, TypeError):
        name = None
    return quoted(name) if isinstance(name, str) else f"number {int(number) + 1}"
