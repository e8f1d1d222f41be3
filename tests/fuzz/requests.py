"""Mutated requests by number: the same seed and number make the same call again.

Most calls have one wrong message; in a stream any of its messages may be the one. Puts are also
made anew, with odd properties and topics in records that are framed well: a mutation of bytes
hardly ever gets past the checks of a record.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from fakes.batches import Put
from fuzz.corpus import pack, unpack
from fuzz.methods import KEY, NAMES, TOPIC, Method, conversations, put_request
from fuzz.mutate import Mutator
from tandemlog.format.errors import FormatError

APPEND = "/tandemlog.v1.Broker/Append"
# How often a method is asked; what is not here: 10. Streams that make the nodes talk are dear.
WEIGHTS = {
    APPEND: 40,
    "/tandemlog.v1.Broker/Pull": 30,
    "/tandemlog.v1.Replication/Replicate": 2,
    "/grpc.health.v1.Health/Watch": 1,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": 3,
}
# More than a node takes, less than this side can send: a large field that is repeated is cut off.
MOST_BYTES = 48 << 20


@dataclass(frozen=True)
class Call:
    """One call: `messages` go out one after the other. `number` says how it was made."""

    node: str
    path: str
    messages: tuple[bytes, ...]
    number: int = -1

    def to_json(self) -> dict[str, Any]:
        packed = [pack(message) for message in self.messages]
        return {"node": self.node, "path": self.path, "messages": packed}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "Call":
        messages = tuple(unpack(parts) for parts in entry["messages"])
        return cls(entry["node"], entry["path"], messages)


class RequestMaker:
    """See the module. `make(number)` is a function of the seed and the number alone."""

    def __init__(self, methods: list[Method], seed: int) -> None:
        self.methods = {method.path: method for method in methods}
        self.seed = seed
        self._seeds = conversations(methods)
        self._paths = [
            method.path for method in methods for _ in range(WEIGHTS.get(method.path, 10))
        ]
        self._mutator = Mutator(NAMES)

    def make(self, number: int) -> Call:
        random = Random(self.seed << 32 | number)
        path = random.choice(self._paths)
        node = "slave" if random.random() < 0.3 else "master"
        if path == APPEND and random.random() < 0.3:
            return Call(node, path, (self._odd_put(random),), number)
        messages = list(random.choice(self._seeds[path]))
        if random.random() < 0.02:
            path += random.choice(("x", "/", "\x7f"))
        elif random.random() < 0.97:
            at = random.randrange(len(messages))
            descriptor = self.methods[path].request
            messages[at] = self._mutator.message(random, messages[at], descriptor)[:MOST_BYTES]
        return Call(node, path, tuple(messages), number)

    def _odd_put(self, random: Random) -> bytes:
        """Records that are framed well, of odd parts."""
        puts = []
        for _ in range(random.choice((1, 1, 2, 5))):
            topic, properties = TOPIC, b"KEYS\x01%s\x02" % KEY.encode()
            if random.random() < 0.2:
                topic = self._mutator.text(random)[:300].decode("latin-1")
            if random.random() < 0.8:
                properties = self._properties(random)
            body = random.randbytes(random.choice((0, 1, 10, 1_000)))
            puts.append(Put(topic, random.choice((0, 1, 2, 3, 4, 70_000)), body, properties))
        try:
            return put_request(puts).SerializeToString()
        except (FormatError, ValueError):
            return b""

    def _properties(self, random: Random) -> bytes:
        names = (b"KEYS", b"TAGS", b"__TL_SEQ", b"UNIQ_KEY", b"DELAY", b"__CRC32#", b"INNER_NUM")
        out = b""
        for _ in range(random.randrange(4)):
            name = random.choice(names) if random.random() < 0.7 else self._mutator.text(random)
            value = self._mutator.text(random)[:30_000]
            if random.random() < 0.2:
                value = b"fuzz-%d,%d,%d,0,%d" % tuple(random.choice((0, 1, 2, 9)) for _ in range(4))
            out += name[:100] + b"\x01" + value + random.choice((b"\x02", b"\x02", b""))
        return out
