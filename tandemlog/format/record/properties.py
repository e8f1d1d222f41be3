"""The properties of a message as text: `name 0x01 value 0x02`, again and again.

Writers differ and readers take them all: the last 0x02 may be missing (RocketMQ 4.9.1 to
5.1.4 leave it out), a name may come twice (the later one counts), a value may be empty or its
0x01 missing (the property is then not there). The first 0x01 of a segment ends the name, so a
value may hold further ones. We always write the last 0x02, and no empty value, because it could not
be read back.
"""

from collections.abc import Collection, Mapping

from ..constants import MAX_PROPERTIES, NAME_END, PROPERTY_END
from ..errors import FormatError, RecordTooLargeError


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The stored form, in the order of `properties`.

    Raises FormatError for a name that is empty or holds 0x01 or 0x02, a value that holds 0x02,
    or text that is not valid Unicode; RecordTooLargeError above 32,767 bytes.
    """
    pieces = [f"{name}\x01{value}\x02" for name, value in properties.items() if value]
    text = "".join(pieces)
    # One separator each for every piece, and no empty name: the usual case, in two counts.
    if text.count("\x01") != len(pieces) or text.count("\x02") != len(pieces) or "" in properties:
        _check_separators(properties)
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"properties: not valid Unicode text: {error}") from error
    if len(encoded) > MAX_PROPERTIES:
        raise RecordTooLargeError("properties", len(encoded), MAX_PROPERTIES)
    return encoded


def _check_separators(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not name:
            raise FormatError("property with an empty name")
        if "\x01" in name or "\x02" in name:
            raise FormatError(f"property name {name!r} holds a separator (0x01 or 0x02)")
        if "\x02" in value:
            raise FormatError(f"value of property {name!r} holds the separator 0x02")


def decode_properties(data: bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties by name; never fails: what is no property is left out, and bytes that
    are not UTF-8 become U+FFFD, both as RocketMQ reads them."""
    properties = {}
    for segment in bytes(data).decode("utf-8", "replace").split("\x02"):
        name, _, value = segment.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def append_property(data: bytes, name: str, value: str) -> bytes:
    """`data` with one property more; a missing last 0x02 is put in between.

    Raises as encode_properties, and FormatError for an empty value.
    """
    if not value:
        raise FormatError(f"property {name!r} has an empty value, which no reader would see")
    joint = b"" if not data or data[-1] == PROPERTY_END else b"\x02"
    encoded = data + joint + encode_properties({name: value})
    if len(encoded) > MAX_PROPERTIES:
        raise RecordTooLargeError("properties", len(encoded), MAX_PROPERTIES)
    return encoded


def edited_properties(
    data: bytes, without: Collection[str], more: Mapping[str, str] | None = None
) -> bytes:
    """`data` without the properties of these names, and with `more` behind. What stays keeps its
    bytes, of whatever text: without `more` the result is never longer. Raises as
    encode_properties."""
    names, end = {name.encode() for name in without}, bytes([PROPERTY_END])
    segments = data.split(end)
    kept = [each for each in segments if each.partition(bytes([NAME_END]))[0] not in names]
    encoded = end.join(kept)
    if more:
        joint = b"" if not encoded or encoded.endswith(end) else end
        encoded += joint + encode_properties(more)
    if len(encoded) > MAX_PROPERTIES:
        raise RecordTooLargeError("properties", len(encoded), MAX_PROPERTIES)
    return encoded


def split_keys(text: str) -> list[str]:
    """The keys in a KEYS value: what single spaces separate, without the empty pieces."""
    return [key for key in text.split(" ") if key]
