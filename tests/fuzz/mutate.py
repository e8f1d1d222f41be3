"""What is done to something valid: to the fields of a message, or to raw bytes.

Everything comes from the Random that is given, so a seed and a number make the same bytes again.
Most mutations are small: a request that is wrong in one place gets further than noise.
"""

from collections.abc import Callable, Sequence
from copy import copy
from random import Random

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fuzz.wire import BYTES, FIXED32, FIXED64, VARINT, Field, encode, parse, varint

NUMBERS = (
    0, 1, 2, 3, 63, 64, 65, 127, 128, 255, 256, 4_096, 32_767, 65_535, 65_536, 65_537, 1_000_000,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2,
    2**64 - 4_096, 2**64 - 2**31,
)  # fmt: skip
TEXTS = (
    b"", b"\x00", b"a\x00b", b"\x01\x02", b"\n\r\x1b[31m", b" ", b".", b"..", b"../../x", b"/",
    b"\\", b"%", b"%s%n", b"a\xffb", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\x80",
    "é".encode(), "名".encode() * 40, "\U0001f980".encode(), "\u202e\ufeff".encode(), b"-1", b"NaN",
    b"x" * 127, b"x" * 128, b"x" * 255, b"x" * 256, b"x" * 300, b"y" * 32_768,
    b"%RETRY%g", b"%DLQ%g", b"SCHEDULE_TOPIC_XXXX", b"RMQ_SYS_TRANS_HALF_TOPIC", b"TBW102",
    b"__proto__", b"null", b"{}",
)  # fmt: skip
HUGE_BYTES = 1 << 20

Bytes = Callable[[Random, bytes], bytes]


class Mutator:
    """`names` are texts that mean something to whoever reads the message: topics, groups, ids."""

    def __init__(self, names: Sequence[bytes]) -> None:
        self._texts = (*TEXTS, *names, *names, *names)

    def message(self, random: Random, data: bytes, descriptor: Descriptor) -> bytes:
        """A mutation of a valid message: of its fields, of its bytes, or of both."""
        choice = random.random()
        if choice < 0.7:
            data = self.fields(random, data, descriptor)
        if choice > 0.6:
            data = self.raw(random, data)
        return data

    def fields(self, random: Random, data: bytes, descriptor: Descriptor) -> bytes:
        """One to three changed fields, at any depth."""
        tree = parse(data, descriptor)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            self._change(random, tree, descriptor)
        return encode(tree)

    def raw(self, random: Random, data: bytes) -> bytes:
        """One or two changes of bytes, without regard for what they mean."""
        for _ in range(random.choice((1, 1, 2))):
            data = random.choice(RAW)(random, data)
        return data

    def text(self, random: Random) -> bytes:
        if random.random() < 0.001:
            return random.choice((b"z", b"\x00", b"\xff", "é".encode())) * HUGE_BYTES
        if random.random() < 0.05:
            return random.randbytes(random.choice((1, 3, 16, 200)))
        return random.choice(self._texts)

    def _change(self, random: Random, tree: list[Field], descriptor: Descriptor) -> None:
        inner = [field for field in tree if isinstance(field.value, list)]
        if inner and random.random() < 0.6:
            field = random.choice(inner)
            message = field.known.message_type if field.known is not None else None
            if message is not None and isinstance(field.value, list):
                self._change(random, field.value, message)
                return
        if not tree or random.random() < 0.15:
            self._add(random, tree, descriptor)
            return
        at = random.randrange(len(tree))
        what = random.random()
        if what < 0.7:
            self._set(random, tree[at])
        elif what < 0.8:
            del tree[at]
        elif what < 0.9:
            times = random.choice((1, 1, 2, 10, 100, 1_000)) if len(tree) < 100 else 1
            tree[at:at] = [copy(tree[at]) for _ in range(times)]
        elif what < 0.95:
            tree[at] = Field(random.choice((1, 2, 3, 9, 15, 16, 19_000, 2**29 - 1)), *_some(random))
        else:
            random.shuffle(tree)

    def _add(self, random: Random, tree: list[Field], descriptor: Descriptor) -> None:
        """A field that the message knows: the other side of a oneof, a second value."""
        if not descriptor.fields:
            tree.append(Field(random.randrange(1, 20), *_some(random)))
            return
        known = random.choice(descriptor.fields)
        field = Field(known.number, BYTES, b"", known)
        if known.message_type is not None:
            value: list[Field] = []
            for _ in range(random.randrange(4)):
                self._add(random, value, known.message_type)
            field.value = value
        else:
            self._set(random, field)
        tree.insert(random.randrange(len(tree) + 1), field)

    def _set(self, random: Random, field: Field) -> None:
        """Another value of the field's type; now and then of another type."""
        known = field.known
        if known is None or random.random() < 0.05:
            field.kind, field.value = _some(random)
        elif known.message_type is not None:
            field.kind, field.value = BYTES, random.choice((b"", b"\x08", self.text(random)))
        elif known.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            if isinstance(field.value, bytes) and field.value and random.random() < 0.4:
                field.value = self.raw(random, field.value)
            else:
                field.value = self.text(random)
            field.kind = BYTES
        elif known.type == FieldDescriptor.TYPE_DOUBLE:
            field.kind, field.value = FIXED64, random.randbytes(8)
        elif known.is_repeated and random.random() < 0.7:
            count = random.choice((0, 1, 1, 2, 50, 1_000))
            field.kind = BYTES
            field.value = b"".join(varint(self.number(random)) for _ in range(count))
        else:
            held = field.value if isinstance(field.value, int) else 0
            near = held + random.choice((-1, 1, 2, 100))
            field.kind, field.value = VARINT, random.choice((self.number(random), near))

    def number(self, random: Random) -> int:
        return random.choice(NUMBERS) if random.random() < 0.9 else random.getrandbits(64)


def _some(random: Random) -> tuple[int, int | bytes]:
    kind = random.choice((VARINT, FIXED64, BYTES, FIXED32))
    if kind == VARINT:
        return kind, random.choice(NUMBERS)
    size = {FIXED64: 8, FIXED32: 4}.get(kind, random.choice((0, 1, 7, 100)))
    return kind, random.randbytes(size)


def _flip_bits(random: Random, data: bytes) -> bytes:
    held = bytearray(data or b"\x00")
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        held[random.randrange(len(held))] ^= 1 << random.randrange(8)
    return bytes(held)


def _truncate(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    piece = random.choice((b"\x00", b"\xff", random.randbytes(random.choice((1, 2, 8, 64)))))
    return data[:at] + piece * random.choice((1, 1, 4, 64)) + data[at:]


def _endless_varint(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    size = random.choice((5, 9, 10, 11, 64, 3_000))
    return data[:at] + random.choice((b"\x80", b"\xff")) * size + data[at:]


def _delete(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at + random.choice((1, 2, 8, 40)) :]


def _double(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + data[at : at + random.choice((1, 10, 200))] * 2 + data[at:]


def _overflow_length(random: Random, data: bytes) -> bytes:
    """A number in place of one byte: most often a length or a tag."""
    if not data:
        return b"\x0a\xff\xff\xff\xff\x0f"
    at = random.randrange(min(len(data), 64))
    return data[:at] + varint(random.choice(NUMBERS)) + data[at + 1 :]


def _noise(random: Random, data: bytes) -> bytes:
    return random.randbytes(random.choice((1, 4, 30, 300)))


def _zeros(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    size = min(random.choice((1, 4, 16, 512)), len(data) - at)
    return data[:at] + bytes(size) + data[at + size :]


RAW: tuple[Bytes, ...] = (
    _flip_bits, _flip_bits, _flip_bits, _truncate, _insert, _endless_varint, _delete, _double,
    _overflow_length, _overflow_length, _noise, _zeros,
)  # fmt: skip
