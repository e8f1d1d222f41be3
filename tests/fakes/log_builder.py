"""Stores made record by record, with whatever a broker's version or a crash may leave in them.

LogBuilder(folder, file_size).put("Orders", 0, b"body")...  ->  folder/commitlog, as RocketMQ writes
"""

from dataclasses import dataclass, field
from pathlib import Path

from tandemlog.format.files.names import offset_file_name
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.record import Record, decode_record, encode_blank, encode_record

STORE_HOST = "10.0.0.5:10911"
BORN_HOST = "10.0.0.9:40001"


@dataclass(slots=True)
class LogBuilder:
    """`start` is the log offset of the first byte; `garbage` stands behind every BLANK."""

    store: Path
    file_size: int = 4096
    start: int = 0
    garbage: bytes = b""
    end: int = field(init=False)
    records: list[Record] = field(init=False, default_factory=list)
    _files: dict[int, bytearray] = field(init=False, default_factory=dict)
    _next: dict[tuple[str, int], int] = field(init=False, default_factory=dict)
    _time: int = field(init=False, default=1_700_000_000_000)

    def __post_init__(self) -> None:
        self.end = self.start

    def put(
        self,
        topic: str = "Orders",
        queue_id: int = 0,
        body: bytes = b"hello",
        properties: dict[str, str] | bytes | None = None,
        *,
        queue_offset: int | None = None,
        sys_flag: int = 0,
        store_host: str = STORE_HOST,
        born_host: str = BORN_HOST,
        property_crc: bool = False,
        step_ms: int = 7,
        named: int = 0,
        reconsume_times: int = 0,
    ) -> Record:
        """Append a record; its file is rolled by RocketMQ's rule. `named` is what its header has in
        prepared_transaction_offset."""
        number = self._next.get((topic, queue_id), 0) if queue_offset is None else queue_offset
        if properties is None:
            properties = {"UNIQ_KEY": f"{self.end:032X}", "KEYS": f"k{self.end}", "TAGS": "TagA"}
        text = properties if isinstance(properties, bytes) else encode_properties(properties)
        self._time += step_ms

        def encoded() -> bytes:
            return encode_record(
                topic=topic, body=body, properties=text, queue_id=queue_id, sys_flag=sys_flag,
                born_timestamp=self._time - 3, born_host=born_host, queue_offset=number,
                physical_offset=self.end, store_timestamp=self._time, store_host=store_host,
                property_crc=property_crc, prepared_transaction_offset=named,
                reconsume_times=reconsume_times,
            )  # fmt: skip

        data = encoded()
        room = self.file_size - self.end % self.file_size
        if len(data) + 8 > room:
            self._write(self.end, encode_blank(room) + self.garbage[: room - 8])
            self.end += room
            data = encoded()
        self._write(self.end, data)
        self.end += len(data)
        if sys_flag & 0xC in (0, 8):
            self._next[topic, queue_id] = number + 1
        self.records.append(decode_record(data))
        return self.records[-1]

    def write(self) -> Path:
        """The files on disk, full length each; answers the store."""
        folder = self.store / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        for base, data in self._files.items():
            (folder / offset_file_name(base)).write_bytes(data)
        return self.store

    def path(self, offset: int) -> Path:
        base = offset - offset % self.file_size
        return self.store / "commitlog" / offset_file_name(base)

    def _write(self, offset: int, data: bytes) -> None:
        base = offset - offset % self.file_size
        file = self._files.setdefault(base, bytearray(self.file_size))
        file[offset - base : offset - base + len(data)] = data


def overwrite(builder: LogBuilder, offset: int, data: bytes) -> None:
    """Other bytes at a log offset of a store that is on disk."""
    path = builder.path(offset)
    with path.open("r+b") as file:
        file.seek(offset % builder.file_size)
        file.write(data)


def flip(builder: LogBuilder, offset: int, bit: int = 0) -> None:
    """Turn one bit of the byte at a log offset."""
    with builder.path(offset).open("rb") as file:
        file.seek(offset % builder.file_size)
        byte = file.read(1)[0]
    overwrite(builder, offset, bytes([byte ^ 1 << bit]))


def varied(builder: LogBuilder, count: int = 60) -> LogBuilder:
    """Records of every form: V1 and V2, IPv6 hosts, property CRC, no trailing 0x02, repeated and
    broken properties, empty bodies, transactions, a delay."""
    long_topic = "%RETRY%" + "g" * 130
    for number in range(count):
        builder.put("Orders", number % 3, bytes([number % 251]) * (number * 7 % 90))
        if number % 4 == 0:
            builder.put(long_topic, 0, b"retry", {"TAGS": "标签", "KEYS": "a  b"})
        if number % 5 == 0:
            builder.put("six", 1, b"v6", store_host="[0:0:0:0:0:0:0:1]:10911",
                        born_host="[2001:db8:0:0:0:0:0:2]:5")  # fmt: skip
        if number % 6 == 0:
            builder.put("crc", 0, b"checked", property_crc=True)
        if number % 7 == 0:
            builder.put("odd", 0, b"", b"TAGS\x01x\x02a\x01\x02TAGS\x01y\x02zz\x02\x01q\x02K\x01v")
            builder.put("none", 0, b"n", b"")
            builder.put("bad", 0, b"u", b"KEYS\x01\xff\xfe k\x02TAGS\x01caf\xc3\x02")
        if number % 8 == 0:
            builder.put("Orders", 1, b"half", sys_flag=4, queue_offset=0)
            builder.put("Orders", 1, b"gone", sys_flag=12, queue_offset=0)
            builder.put("Orders", 1, b"done", sys_flag=8)
            builder.put("SCHEDULE_TOPIC_XXXX", 2, b"later", {"DELAY": "3", "TAGS": "t"})
    return builder
