"""Frames of RocketMQ's clients: a valid request of each code, and what is done to it.

    valid request ─▶ fields missing, extreme, of a wrong type, twice, too many
                  ─▶ body: its lengths, its JSON, its bytes
                  ─▶ flags, opaque, version, language
                  ─▶ header in JSON or binary ─▶ now and then bytes of the frame

A frame is a function of the seed and its number. `Frame.expects` says whether an answer may be
waited for: a frame that is whole, and has a header that can be read, gets one.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from struct import Struct, error, pack
from typing import Any, Final

from fuzz.mutate import RAW, TEXTS
from tandemlog_server.rocketmq.clients.codes import RequestCode

TOPIC: Final = "orders"
GROUP: Final = "readers"
NAMES: Final = (
    TOPIC, GROUP, f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", "TBW102", "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "../../etc", "a/b", "DefaultCluster",
    "%RETRY%", "%DLQ%", "%RETRY%%RETRY%g",
)  # fmt: skip
NUMBERS: Final = (
    "0", "-1", "1", "2", "7", "255", "256", "32767", "65536", "2147483647", "2147483648",
    "-2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "1e3", "1.5", "NaN", "Infinity", "", " 1", "1_0", "+1", "0x10", "٣",
    "9" * 30, "9" * 5_000, "true", "null",
)  # fmt: skip
VALUES: Final[tuple[Any, ...]] = (
    0, 1, -1, 1 << 31, 1 << 63, -(1 << 63), 10**40, True, False, None, 1.5, float("nan"),
    float("inf"), 1e308, [], [1], {}, {"a": 1}, "", "x",
)  # fmt: skip
"""What stands in a JSON header in place of a text."""
SEPARATORS: Final = (
    "\x01", "\x02", "\x01\x02", "a\x01", "\x01b\x02", "\x02\x02\x02", "a\x01b", "a\x01b\x02c",
    "UNIQ_KEY\x01\x02", "KEYS\x01a b c\x02", "TAGS\x01t\x02TAGS\x01u\x02", "DELAY\x013\x02",
    "DELAY\x01-1\x02", "DELAY\x0199999999999\x02", "DELAY\x01x\x02", "TIMER_DELAY_SEC\x01-5\x02",
    "TIMER_DELAY_MS\x0199999999999999999\x02", "TIMER_DELIVER_MS\x019223372036854775807\x02",
    "TIMER_OUT_MS\x011\x02", "TIMER_DEL_UNIQKEY\x01a\x02", "REAL_TOPIC\x01orders\x02",
    "REAL_QID\x019\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02", "TRAN_MSG\x01true\x02", "WAIT\x01false\x02",
    "TRAN_MSG\x01true\x02DELAY\x011\x02", "__TL_SEQ\x01x\x02", "__TL_TX\x01a\x02",
    "__CRC32#\x0100\x02", "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02",
    "INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02",
    "INNER_NUM\x015\x02INNER_BASE\x010\x02", "POP_CK\x011 2 3\x02", "RETRY_TOPIC\x01\x02",
    "UNIQ_KEY\x01" + "k" * 300 + "\x02", "KEYS\x01" + "k " * 4_000 + "\x02", "a\x01" + "v" * 32_000,
    "a\x01" + "é" * 16_384 + "\x02", "".join(f"n{each}\x01v\x02" for each in range(2_000)),
)  # fmt: skip
"""Properties of messages."""
MOST_FIELD: Final = 60_000

Sign = Callable[[dict[str, str], bytes], None]

_MESSAGE: Final = Struct(">iiiii")
_BINARY: Final = Struct(">hBhii")


@dataclass(frozen=True)
class Frame:
    """`data` as it goes over the wire. `opaque` of the answer to wait for, None: there may be none
    (`code` says of what)."""

    data: bytes
    code: int
    opaque: int | None


@dataclass
class _Request:
    code: int
    fields: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""


def _row(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def member(body: bytes = b"m", properties: bytes = b"TAGS\x01t\x02", flag: int = 0) -> bytes:
    """One of the messages of a batch."""
    size = _MESSAGE.size + len(body) + 2 + len(properties)
    head = _MESSAGE.pack(size, 0, 0, flag, len(body))
    return head + body + pack(">h", len(properties)) + properties


SEND_FIELDS: Final = {
    "a": "producers", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0",
    "g": "1700000000000", "h": "0", "i": "TAGS\x01t\x02", "j": "0", "k": "false",
}  # fmt: skip
_LONG = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
)  # fmt: skip
_QUEUE: Final = {"topic": TOPIC, "queueId": "0"}
_HEARTBEAT = _row(
    clientID="10.0.0.7@1",
    producerDataSet=[{"groupName": "producers"}],
    consumerDataSet=[
        {
            "groupName": GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {"topic": TOPIC, "subString": "a || b", "expressionType": "TAG", "subVersion": 1}
            ],
        }
    ],
)
_LOCKS = _row(
    consumerGroup=GROUP,
    clientId="10.0.0.7@1",
    mqSet=[{"topic": TOPIC, "brokerName": "b", "queueId": 0}],
)
VALID: Final[Mapping[int, tuple[Mapping[str, str], bytes]]] = {
    10: (dict(zip(_LONG, SEND_FIELDS.values(), strict=True)), b"body"),
    310: (SEND_FIELDS, b"body"),
    320: ({**SEND_FIELDS, "m": "true"}, member(b"one") + member(b"two")),
    324: (dict(zip(_LONG, SEND_FIELDS.values(), strict=True)), b"reply"),
    325: ({**SEND_FIELDS, "i": "REPLY_TO_CLIENT\x0110.0.0.7@1\x02CORRELATION_ID\x01c\x02"}, b"r"),
    11: (
        {
            **_QUEUE,
            "consumerGroup": GROUP,
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "100",
            "subscription": "a || b",
            "subVersion": "1",
            "expressionType": "TAG",
            "maxMsgBytes": "4096",
        },
        b"",
    ),
    12: (
        {
            "topic": TOPIC,
            "key": "k",
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": "9223372036854775807",
        },
        b"",
    ),
    14: ({**_QUEUE, "consumerGroup": GROUP, "setZeroIfNotFound": "true"}, b""),
    15: ({**_QUEUE, "consumerGroup": GROUP, "commitOffset": "1"}, b""),
    17: (
        {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "+a=b",
        },
        b"",
    ),
    29: ({**_QUEUE, "timestamp": "1700000000000", "boundaryType": "LOWER"}, b""),
    33: ({"offset": "0"}, b""),
    34: ({}, _HEARTBEAT),
    35: ({"clientID": "10.0.0.7@1", "producerGroup": "producers", "consumerGroup": GROUP}, b""),
    36: (
        {
            "group": GROUP,
            "offset": "0",
            "delayLevel": "0",
            "originMsgId": "",
            "originTopic": TOPIC,
            "maxReconsumeTimes": "16",
            "unitMode": "false",
        },
        b"",
    ),
    37: (
        {
            "producerGroup": "producers",
            "tranStateTableOffset": "0",
            "commitLogOffset": "0",
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "a",
            "transactionId": "a",
        },
        b"",
    ),
    38: ({"consumerGroup": GROUP}, b""),
    41: ({}, _LOCKS),
    42: ({}, _LOCKS),
    46: (
        {},
        _row(
            clientId="c",
            group=GROUP,
            subscriptionData={"topic": TOPIC, "subString": "a > 1", "expressionType": "SQL92"},
        ),
    ),
    200: ({}, _row(groupName=GROUP, consumeEnable=True, retryMaxTimes=3, retryQueueNums=1)),
    207: ({"groupName": "gone"}, b""),
    215: ({"topic": "gone"}, b""),
    222: ({"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}, b""),
    307: ({"consumerGroup": GROUP, "clientId": "nobody", "jstackEnable": "false"}, b""),
    200_050: (
        {
            **_QUEUE,
            "consumerGroup": GROUP,
            "queueId": "-1",
            "maxMsgNums": "8",
            "invisibleTime": "1000",
            "pollTime": "50",
            "bornTime": "0",
            "initMode": "0",
            "exp": "*",
            "expType": "TAG",
            "order": "false",
            "attemptId": "a",
        },
        b"",
    ),
    200_051: (
        {**_QUEUE, "consumerGroup": GROUP, "offset": "0", "extraInfo": "0 1 1000 3 0 b 0 0"},
        b"",
    ),
    200_052: ({**_QUEUE, "consumerGroup": GROUP, "maxMsgNums": "4"}, b""),
    200_053: (
        {
            **_QUEUE,
            "consumerGroup": GROUP,
            "offset": "0",
            "extraInfo": "0 1 1000 3 0 b 0 0",
            "invisibleTime": "1000",
        },
        b"",
    ),
    200_054: ({**_QUEUE, "consumerGroup": GROUP, "pollTime": "50", "bornTime": "0"}, b""),
    200_055: ({**_QUEUE, "consumerGroup": GROUP}, b""),
    200_151: (
        {},
        _row(
            brokerName="b",
            acks=[{"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 3, "b": "Aw=="}],
        ),
    ),
    361: ({**_QUEUE, "consumerGroup": GROUP, "queueOffset": "0", "maxMsgNums": "1"}, b""),
    370: ({"topic": TOPIC, "recallHandle": "djEgdCBiIDEga2V5", "producerGroup": "p"}, b""),
}
"""Fields and body by code; any other code gets the fields of GENERAL."""
GENERAL: Final = {
    **_QUEUE, "consumerGroup": GROUP, "producerGroup": "producers", "group": GROUP,
    "clientId": "10.0.0.7@1", "timestamp": "0", "key": "k", "namespace": "n", "value": "v",
}  # fmt: skip
CODES: Final = tuple(
    sorted({each for each in vars(RequestCode).values() if isinstance(each, int)} | {*VALID})
)
NO_ANSWER: Final = frozenset({11, 361, 37, 200_050, 200_054})
"""A pull or a pop may be parked, and a producer that does not know gets none."""


def frame(seed: int, number: int, sign: Sign | None = None) -> Frame:
    """The frame of that number; `sign` puts a proof into the fields, which are texts then."""
    random = Random(seed << 32 | number)
    code = random.choice(CODES) if random.random() < 0.97 else random.randrange(-40_000, 210_000)
    fields, body = VALID.get(code, (GENERAL, b""))
    request = _Request(code, dict(fields), body)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        random.choice(_CHANGES)(random, request)
    if sign is not None:
        request.fields = {name: _text(value) for name, value in request.fields.items()}
        sign(request.fields, request.body)
    opaque = number % 0x7FFFFFFF
    flag = random.choice((0,) * 12 + (1, 2, 3, 1 << 16, 1 << 17, 3 << 16, -1, 1 << 30))
    version = random.choice((0, 394, 513, 513, -1, 32_767))
    if random.random() < 0.35 and -(1 << 15) <= code < 1 << 15:
        data, whole = _in_binary(random, request, opaque, flag, version)
    else:
        data, whole = _in_json(random, request, opaque, flag, version)
    if random.random() < 0.05:
        data, whole = random.choice(RAW)(random, data), False
    answered = whole and not flag & 3 and code not in NO_ANSWER
    return Frame(data, code, opaque if answered else None)


# ---- fields and bodies


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _value(random: Random, name: str) -> str:
    if name in ("i", "properties") or random.random() < 0.05:
        return "".join(random.choice(SEPARATORS) for _ in range(random.choice((1, 1, 2, 3))))
    choice = random.random()
    if choice < 0.5:
        return random.choice(NUMBERS)
    if choice < 0.8:
        return random.choice(NAMES)
    return random.choice(TEXTS).decode("utf-8", "replace")[:MOST_FIELD]


def _drop(random: Random, request: _Request) -> None:
    if request.fields:
        del request.fields[random.choice(list(request.fields))]


def _set(random: Random, request: _Request) -> None:
    if request.fields:
        name = random.choice(list(request.fields))
        request.fields[name] = _value(random, name)


def _set_other_type(random: Random, request: _Request) -> None:
    if request.fields:
        request.fields[random.choice(list(request.fields))] = random.choice(VALUES)


def _add(random: Random, request: _Request) -> None:
    name = random.choice((*GENERAL, *SEND_FIELDS, *_LONG, "AccessKey", "Signature", "", "\x00"))
    request.fields[name] = _value(random, name)


def _many(random: Random, request: _Request) -> None:
    for each in range(random.choice((200, 255, 300, 2_000))):
        request.fields[f"f{each}"] = "v"


def _other_body(random: Random, request: _Request) -> None:
    request.body = random.choice(
        (b"", b"\x00", b"{}", b"[]", b"null", b"NaN", b"[" * 50_000, b'{"a":' * 20_000, b"\xff\xfe",
         b'{"clientID":"c","clientID":7}', b'{"clientID":' + b"9" * 5_000 + b"}",
         b'{"clientID":"\\ud800"}', b"x" * 70_000, b"y" * 200_000, _HEARTBEAT, _LOCKS,
         member() * 300, member(b"", b""), member(b"z" * 120_000))
    )  # fmt: skip


def _body_bytes(random: Random, request: _Request) -> None:
    request.body = random.choice(RAW)(random, request.body)


def _body_json(random: Random, request: _Request) -> None:
    try:
        document = json.loads(request.body)
    except (ValueError, RecursionError):
        return _body_lengths(random, request)
    _change_json(random, document)
    request.body = json.dumps(document).encode()
    return None


def _change_json(random: Random, document: Any) -> None:
    rows: list[Any] = list(document.items()) if isinstance(document, dict) else []
    rows = rows or (list(enumerate(document)) if isinstance(document, list) else [])
    if not rows:
        return
    key, value = random.choice(rows)
    if isinstance(value, dict | list) and random.random() < 0.7:
        _change_json(random, value)
    elif random.random() < 0.2:
        del document[key]
    elif random.random() < 0.5:
        document[key] = _value(random, str(key))
    else:
        document[key] = random.choice((*VALUES, [document[key]] * 300, "\ud800"))


def _body_lengths(random: Random, request: _Request) -> None:
    """One of the numbers of a batch says something else."""
    body = bytearray(request.body)
    if len(body) < 4:
        return
    at = random.randrange(0, len(body) - 3)
    number = random.choice((0, 1, 21, 22, 255, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1))
    body[at : at + 4] = pack(">I", number)
    request.body = bytes(body)


_CHANGES: Final[tuple[Callable[[Random, _Request], None], ...]] = (
    _drop, _set, _set, _set, _set, _set_other_type, _add, _many, _other_body, _body_bytes,
    _body_json, _body_json, _body_lengths,
)  # fmt: skip


# ---- headers


def _framed(header: bytes, body: bytes, header_format: int, length: int | None = None) -> bytes:
    size = 4 + len(header) + len(body) if length is None else length
    return (
        pack(">II", size & 0xFFFFFFFF, header_format << 24 | len(header) & 0xFFFFFF) + header + body
    )


def _in_json(
    random: Random, request: _Request, opaque: int, flag: int, version: int
) -> tuple[bytes, bool]:
    head: dict[str, Any] = {
        "code": request.code,
        "extFields": request.fields,
        "flag": flag,
        "language": random.choice(("JAVA", "CPP", "GO", "x", None)),
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": version,
    }
    # what a reader cannot read as a field ends the connection, as the frame says
    whole = all(isinstance(each, str | int | None) for each in request.fields.values())
    whole = whole and len(request.fields) <= 256
    choice = random.random()
    if choice < 0.04:
        name = random.choice(("code", "opaque", "flag", "version", "extFields"))
        head[name] = random.choice((*VALUES, 10**4_000, 10**18, "\ud800"))
        whole = False
    elif choice < 0.06:
        del head[random.choice(list(head))]
        whole = False
    text = json.dumps(head)
    if choice > 0.97:
        text = text.replace('"flag"', '"code": 34, "extFields": {}, "flag"', 1)
        whole = False
    elif choice > 0.95:
        text, whole = text + random.choice((" ", "\n", "x", "{}", "\x00")), False
    header = text.encode("utf-8", "surrogatepass")
    data = _framed(header, request.body, 0)
    return data, whole and len(header) < 100_000


def _in_binary(
    random: Random, request: _Request, opaque: int, flag: int, version: int
) -> tuple[bytes, bool]:
    rows, whole = b"", len(request.fields) <= 256
    for name, value in request.fields.items():
        key, text = name.encode(), str(value).encode()
        lengths = len(key), len(text)
        if random.random() < 0.01:
            other = random.choice((-1, 0, 1, 32_767, 1 << 30, -(1 << 31)))
            lengths, whole = (max(-1, min(other, 32_767)), other), False
        rows += pack(">h", lengths[0]) + key + pack(">i", lengths[1]) + text
    remark = random.choice((b"", b"", b"a remark"))
    head = _BINARY.pack(request.code, random.choice((0, 4, 9, 13, 14, 255)), version, opaque, flag)
    size = len(rows)
    if random.random() < 0.02:
        size, whole = random.choice((-1, 0, size - 1, size + 1, 1 << 30)), False
    try:
        header = head + pack(">i", len(remark)) + remark + pack(">i", size) + rows
    except error:
        return b"", False
    return _framed(header, request.body, 1), whole and len(header) < 100_000
